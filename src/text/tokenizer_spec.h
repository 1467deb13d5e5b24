// A tokenizer as data: what tokenizer.json and tokenizer_config.json say.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "text/tokenizer.h"

namespace lode::text {

struct TokenizerSpec {
  // All of tokenizer.json; model.vocab and model.merges are empty here and given below.
  Json document;
  std::vector<std::pair<std::string, std::int32_t>> vocab;    // as spelled there
  std::vector<std::pair<std::int32_t, std::int32_t>> merges;  // by ids, best first
  Json config;                                                // tokenizer_config.json, or null
  Json special_map;                                           // special_tokens_map.json, or null
  NamedTokens named;
  ChatTemplates templates;
  std::vector<std::int32_t> stop_ids;  // generation_config.json's eos_token_id
};

// Ids above this are refused: tables are indexed by id.
inline constexpr std::int64_t kMaxTokenId = (1 << 24) - 1;

// Reads tokenizer.json and what lies beside it. Checks their shape; what the parts mean is checked when a
// Tokenizer is made of them.
TokenizerSpec read_tokenizer(FileSystem& files, const std::string& json_path);
TokenizerSpec parse_tokenizer(std::string_view json, const std::string& what);  // tokenizer.json alone
TokenizerFiles tokenizer_files(const TokenizerSpec& spec, std::int64_t model_max_length);

// The parts of these two that concern tokenizer_config.json, special_tokens_map.json, chat templates and
// generation_config.json.
void read_tokenizer_config(FileSystem& files, const std::string& folder, TokenizerSpec& spec);
void add_config_files(const TokenizerSpec& spec, std::int64_t model_max_length, TokenizerFiles& files);
// A string, null or absent (both: empty), or {"content": ...}.
std::string named_token(const Json& config, std::string_view key, const std::string& what);

// {"id", "content", ...} with the keys and order of the reference.
Json special_token_json(std::int32_t id, const std::string& content);

}  // namespace lode::text
