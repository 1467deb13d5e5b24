// Tokenizers as GGUF files carry them. A rebuilt tokenizer is an ordinary one: it saves as tokenizer.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/gguf.h"
#include "text/tokenizer.h"

namespace lode {

// The metadata below "tokenizer.", by its names there.
struct GgufTokenizerData {
  std::string model, pre;  // "gpt2" (byte level) or "llama" (sentencepiece style); pre: "" when absent
  std::vector<std::string> tokens;
  std::vector<float> scores;              // model "llama"
  std::vector<std::int32_t> token_types;  // 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
  std::vector<std::string> merges;        // "left right"
  std::optional<std::int32_t> bos, eos, unk, pad, eot;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
  std::string huggingface_json;  // a whole tokenizer.json, preferred to all of the above
  ChatTemplates chat_templates;
};

// Throws Error(data) naming `what` and the key for anything contradictory or not supported.
Tokenizer tokenizer_from_gguf(const GgufTokenizerData& data, const std::string& what);
// Without the unused tokens at the end.
Tokenizer tokenizer_from_gguf(const GgufFile& file);

// For export. Throws Error(data) for a tokenizer that GGUF readers would not understand: a pre-tokenizer
// without a name there, a normalizer that the format does not know. huggingface_json is filled when the rest
// does not give exactly this tokenizer back.
GgufTokenizerData gguf_tokenizer_data(const Tokenizer& tokenizer);

// Unused tokens "[PADn]" at the end stand for rows of the model that no token has, since readers expect one
// token a row: adds them up to that number; removes them.
void pad_gguf_tokens(GgufTokenizerData& data, std::int64_t rows);
void remove_gguf_padding(GgufTokenizerData& data);

GgufTokenizerData read_gguf_tokenizer(const GgufFile& file);
void add_gguf_tokenizer(const GgufTokenizerData& data, GgufFields& fields);

// The names that "tokenizer.ggml.pre" may have.
std::vector<std::string_view> gguf_pre_names();

}  // namespace lode
