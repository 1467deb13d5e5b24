// The small byte-level tokenizer whose ids are known (bytes are ids 0..255), as a tokenizer.json document.
#pragma once

#include <string>

#include "core/file.h"
#include "core/json.h"
#include "temp_folder.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace lode {

inline constexpr std::string_view kLlama3Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

inline Json byte_level(bool prefix, bool use_regex) {
  return Json::object({{"type", "ByteLevel"},
                       {"add_prefix_space", prefix},
                       {"trim_offsets", true},
                       {"use_regex", use_regex}});
}

inline Json split(std::string_view expression, std::string_view behavior = "Isolated", bool invert = false) {
  return Json::object({{"type", "Split"},
                       {"pattern", Json::object({{"Regex", expression}})},
                       {"behavior", behavior},
                       {"invert", invert}});
}

inline Json sequence(Json::Array steps) {
  return Json::object({{"type", "Sequence"}, {"pretokenizers", std::move(steps)}});
}

inline Json added_token(int id, std::string_view content, bool special, bool normalized = false) {
  return Json::object({{"id", id},
                       {"content", content},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", normalized},
                       {"special", special}});
}

inline Json small_document() {
  Json vocab = Json::object();
  for (int b = 0; b < 256; b++) {
    const char byte = static_cast<char>(b);
    vocab[text::bytes_to_alphabet(std::string_view(&byte, 1))] = b;
  }
  Json merges = Json::array();
  int id = 256;
  for (const auto& [left, right] : {std::pair{"h", "e"},
                                    {"l", "l"},
                                    {"he", "ll"},
                                    {"hell", "o"},
                                    {"Ġ", "w"},
                                    {"o", "r"},
                                    {"Ġw", "or"},
                                    {"l", "d"},
                                    {"Ġwor", "ld"},
                                    {"Ġ", "Ġ"},
                                    {"1", "2"},
                                    {"12", "3"}}) {
    merges.push_back(Json(Json::Array{Json(left), Json(right)}));
    vocab[std::string(left) + right] = id++;
  }
  vocab["hel"] = 268;
  return Json::object(
      {{"version", "1.0"},
       {"truncation", nullptr},
       {"padding", nullptr},
       {"added_tokens", Json(Json::Array{added_token(269, "<|end|>", true), added_token(270, "<x>", false)})},
       {"normalizer", nullptr},
       {"pre_tokenizer", sequence({split(kLlama3Expression), byte_level(false, false)})},
       {"post_processor", nullptr},
       {"decoder", byte_level(true, true)},
       {"model", Json::object({{"type", "BPE"},
                               {"dropout", nullptr},
                               {"unk_token", nullptr},
                               {"continuing_subword_prefix", nullptr},
                               {"end_of_word_suffix", nullptr},
                               {"fuse_unk", false},
                               {"byte_fallback", false},
                               {"ignore_merges", true},
                               {"vocab", std::move(vocab)},
                               {"merges", std::move(merges)}})}});
}

inline Tokenizer load_document(const Json& document, const Json& config = Json()) {
  const TempFolder folder;
  write_file_atomically(real_files(), folder / "tokenizer.json", document.dump());
  if (!config.is_null()) write_file_atomically(real_files(), folder / "tokenizer_config.json", config.dump());
  return Tokenizer::load(real_files(), folder.path());
}

}  // namespace lode
