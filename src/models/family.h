// Model families: a Hugging Face config.json -> the generic decoder's descriptor and its tensor names. One
// file a family.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "nn/decoder.h"

namespace lode {

struct Family {
  std::string_view model_type;
  std::string_view architecture;  // the class that Hugging Face loads
  DecoderSpec (*spec)(const Json& config, const std::string& file);
  DecoderNames (*names)();
};

std::vector<std::string_view> known_families();
// Throws Error(data) that lists the known ones.
const Family& find_family(std::string_view model_type, const std::string& file);

// A model's description as read from its folder or its config.json; `json` keeps every key for writing it
// back.
struct ModelConfig {
  std::string file;  // path of the config.json, or of the GGUF file
  Json json;
  DecoderSpec spec;
  DecoderNames names;
  // Rows of the embedding, and of a head of its own, in the files of the base when spec.vocab_size has grown
  // beyond them (models/vocabulary.h). 0: all.
  std::int64_t stored_rows = 0;
};
// path: a folder with a config.json, or the file itself; or a GGUF file, or a folder with one and no
// config.json.
ModelConfig read_model_config(FileSystem& files, const std::string& path);

// Typed access to a config's keys; errors are Error(data) naming file and key. An absent or null key gives
// the default.
class ConfigReader {
 public:
  ConfigReader(const Json& json, std::string file) : json_(json), file_(std::move(file)) {}

  std::int64_t integer(std::string_view key, std::int64_t otherwise, std::int64_t least = 1) const;
  double number(std::string_view key, double otherwise) const;
  double positive(std::string_view key, double otherwise) const;
  double probability(std::string_view key, double otherwise) const;  // of dropping: [0, 1)
  bool boolean(std::string_view key, bool otherwise) const;
  std::string text(std::string_view key, std::string_view otherwise) const;
  const Json* find(std::string_view key) const;  // nullptr when absent or null
  bool is_null(std::string_view key) const;      // present and null
  [[noreturn]] void refuse(std::string_view key, std::string_view reason) const;
  const std::string& file() const { return file_; }

 private:
  const Json& json_;
  std::string file_;
};

// Refuses sizes beyond any machine, before they are multiplied as integers or a list has an entry a layer.
void check_size(const DecoderSpec& spec, const std::string& file);

Activation read_activation(const ConfigReader& config, std::string_view key, std::string_view otherwise);

}  // namespace lode
