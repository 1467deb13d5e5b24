#include "models/family.h"

#include <algorithm>
#include <cmath>

#include "models/gguf_config.h"

namespace lode {

extern const Family kGemma3;
extern const Family kGpt2;
extern const Family kLlama;
extern const Family kMistral;
extern const Family kQwen2;
extern const Family kQwen3;
extern const Family kSmolLm3;

namespace {

const Family* const kFamilies[] = {&kGemma3, &kGpt2, &kLlama, &kMistral, &kQwen2, &kQwen3, &kSmolLm3};

}  // namespace

void check_size(const DecoderSpec& spec, const std::string& file) {
  constexpr double kMost = 1e13;
  const auto hidden = static_cast<double>(spec.hidden);
  const double heads = static_cast<double>(spec.heads) * static_cast<double>(spec.head_dim);
  const double layer = hidden * (4 * heads + 3 * static_cast<double>(spec.intermediate));
  const double tables = hidden * static_cast<double>(spec.vocab_size + spec.max_positions);
  const double total = 2 * tables + static_cast<double>(spec.layers) * layer;
  if (total > kMost) {
    fail(ErrorKind::data,
         "{}: the sizes describe a model of about {:.1e} parameters; at most {:.0e} are supported", file,
         total, kMost);
  }
  constexpr std::int64_t kMostLayers = 10000;
  if (spec.layers > kMostLayers) {
    fail(ErrorKind::data, "{}: {} layers; at most {} are supported", file, spec.layers, kMostLayers);
  }
}

std::vector<std::string_view> known_families() {
  std::vector<std::string_view> names;
  for (const Family* family : kFamilies) names.push_back(family->model_type);
  return names;
}

const Family& find_family(std::string_view model_type, const std::string& file) {
  for (const Family* family : kFamilies) {
    if (family->model_type == model_type) return *family;
  }
  std::string known;
  for (const Family* family : kFamilies)
    known += format("{}{}", known.empty() ? "" : ", ", family->model_type);
  fail(ErrorKind::data, "{}: model_type \"{}\" is not supported; known: {}", file, model_type, known);
}

ModelConfig read_model_config(FileSystem& files, const std::string& path) {
  if (!files.exists(path)) fail(ErrorKind::data, "{}: no such model folder or config.json", path);
  ModelConfig config;
  if (const auto gguf = find_gguf(files, path)) {
    config.file = *gguf;
    config.json = gguf_config(GgufFile(files, *gguf));
  } else {
    config.file = files.is_directory(path) ? join_path(path, "config.json") : path;
    if (!files.exists(config.file)) fail(ErrorKind::data, "{}: the folder has no config.json", path);
    config.json = parse_json(files.read(config.file), config.file);
  }
  const ConfigReader reader(config.json, config.file);
  const std::string model_type = reader.text("model_type", "");
  if (model_type.empty()) fail(ErrorKind::data, "{}: the key \"model_type\" is missing", config.file);
  const Family& family = find_family(model_type, config.file);
  config.spec = family.spec(config.json, config.file);
  config.spec.model_type = model_type;
  config.names = family.names();
  check_size(config.spec, config.file);
  return config;
}

const Json* ConfigReader::find(std::string_view key) const {
  const Json* value = json_.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool ConfigReader::is_null(std::string_view key) const {
  const Json* value = json_.find(key);
  return value != nullptr && value->is_null();
}

void ConfigReader::refuse(std::string_view key, std::string_view reason) const {
  fail(ErrorKind::data, "{}: {}: {}", file_, key, reason);
}

std::int64_t ConfigReader::integer(std::string_view key, std::int64_t otherwise, std::int64_t least) const {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  if (!value->is_int() || value->as_int() < least || value->as_int() > kMost) {
    refuse(key, format("expected an integer from {} to {}, found {}", least, kMost, value->dump()));
  }
  return value->as_int();
}

double ConfigReader::number(std::string_view key, double otherwise) const {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_number() || !std::isfinite(value->as_double())) {
    refuse(key, format("expected a number, found {}", value->dump()));
  }
  return value->as_double();
}

double ConfigReader::positive(std::string_view key, double otherwise) const {
  const double value = number(key, otherwise);
  if (!(value > 0)) refuse(key, format("expected a number above 0, found {}", value));
  return value;
}

double ConfigReader::probability(std::string_view key, double otherwise) const {
  const double value = number(key, otherwise);
  if (!(value >= 0 && value < 1)) refuse(key, format("expected a number in [0, 1), found {}", value));
  return value;
}

bool ConfigReader::boolean(std::string_view key, bool otherwise) const {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_bool()) refuse(key, format("expected true or false, found {}", value->dump()));
  return value->as_bool();
}

std::string ConfigReader::text(std::string_view key, std::string_view otherwise) const {
  const Json* value = find(key);
  if (value == nullptr) return std::string(otherwise);
  if (!value->is_string()) refuse(key, format("expected a string, found {}", value->dump()));
  return value->as_string();
}

Activation read_activation(const ConfigReader& config, std::string_view key, std::string_view otherwise) {
  const std::string name = config.text(key, otherwise);
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "gelu") return Activation::gelu_erf;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast" || name == "gelu_accurate") {
    return Activation::gelu_tanh;
  }
  config.refuse(
      key,
      format("the activation \"{}\" is not supported; known: silu, gelu, gelu_new, gelu_pytorch_tanh", name));
}

}  // namespace lode
