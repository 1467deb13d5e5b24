#include "models/saved_config.h"

namespace lode {
namespace {

// A key that is absent stands for the family's own id, which belongs to another tokenizer: none is written as
// null.
void set_token(Json& json, std::string_view key, std::optional<std::int32_t> id) {
  if (id) {
    json[key] = static_cast<std::int64_t>(*id);
  } else if (json.find(key) == nullptr) {
    json[key] = nullptr;
  }
}

}  // namespace

std::string saved_config(const ModelConfig& config, const Tokenizer& tokenizer, DType dtype) {
  Json json = config.json;
  const Family& family = find_family(config.spec.model_type, config.file);
  json["architectures"] = Json::Array{Json(family.architecture)};
  set_token(json, "bos_token_id", tokenizer.bos_id());
  set_token(json, "eos_token_id", tokenizer.eos_id());
  set_token(json, "pad_token_id", tokenizer.pad_id());
  // Version 4 of transformers reads torch_dtype, version 5 dtype and torch_dtype.
  json["torch_dtype"] = dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
  if (json.find("dtype") != nullptr) json["dtype"] = json.at("torch_dtype");
  return json.dump(2) + "\n";
}

std::string saved_generation_config(const Tokenizer& tokenizer) {
  Json json = Json::object();
  json["_from_model_config"] = true;
  set_token(json, "bos_token_id", tokenizer.bos_id());
  set_token(json, "eos_token_id", tokenizer.eos_id());
  if (const auto stop = tokenizer.stop_ids(); stop.size() > 1) {
    Json ids = Json::array();
    for (const std::int32_t id : stop) ids.push_back(static_cast<std::int64_t>(id));
    json["eos_token_id"] = std::move(ids);
  }
  set_token(json, "pad_token_id", tokenizer.pad_id());
  return json.dump(2) + "\n";
}

}  // namespace lode
