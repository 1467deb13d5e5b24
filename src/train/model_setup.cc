#include "train/model_setup.h"

#include "models/weights.h"

namespace lode {
namespace {

std::string folder_of(FileSystem& files, const std::string& path) {
  if (files.is_directory(path)) return path;
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

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

ModelParts read_model_parts(FileSystem& files, const std::string& model_path,
                            const std::string& tokenizer_path) {
  ModelConfig config = read_model_config(files, model_path);
  const std::string tokenizer_source = tokenizer_path.empty() ? folder_of(files, model_path) : tokenizer_path;
  if (tokenizer_path.empty() && !files.exists(join_path(tokenizer_source, "tokenizer.json"))) {
    fail(ErrorKind::data,
         "{}: there is no tokenizer.json in the model's folder; name one with tokenizer_name_or_path, or "
         "train one with "
         "`lode tokenizer train`",
         tokenizer_source);
  }
  Tokenizer tokenizer = Tokenizer::load(files, tokenizer_source);
  if (tokenizer.vocab_size() > config.spec.vocab_size) {
    fail(ErrorKind::data,
         "{}: vocab_size is {}, but the tokenizer in {} has ids up to {}: they do not belong together",
         config.file, config.spec.vocab_size, tokenizer_source, tokenizer.vocab_size() - 1);
  }
  return {std::move(config), std::move(tokenizer)};
}

Model load_model(FileSystem& files, Engine& engine, const std::string& path) {
  ModelParts parts = read_model_parts(files, path, "");
  report_model_facts(engine.facts(), parts.config.spec, false);
  auto decoder = std::make_unique<Decoder>(engine.context(), parts.config.spec, parts.config.names, false);
  load_model_weights(files, folder_of(files, path), parts.config, *decoder, engine.context());
  return {std::move(parts.config), std::move(parts.tokenizer), std::move(decoder)};
}

void report_model_facts(Facts& facts, const DecoderSpec& spec, bool training) {
  if (training && spec.attention_dropout > 0) {
    facts.set(
        {"attention dropout", format("{}", spec.attention_dropout), "0",
         "the attention kernel never holds the probabilities that it would drop; set it to 0 in config.json",
         true});
  }
  facts.set({"attention", "flash", "flash", "tiles over segments, no T x T matrix"});
  facts.set({"loss", "fused", "fused", "head and cross entropy in chunks of tokens, logits never exist"});
}

std::string saved_config(const ModelConfig& config, const Tokenizer& tokenizer) {
  Json json = config.json;
  const Family& family = find_family(config.spec.model_type, config.file);
  json["architectures"] = Json::Array{Json(family.architecture)};
  set_token(json, "bos_token_id", tokenizer.bos_id());
  set_token(json, "eos_token_id", tokenizer.eos_id());
  set_token(json, "pad_token_id", tokenizer.pad_id());
  // Version 4 of transformers reads torch_dtype, version 5 dtype and torch_dtype.
  json["torch_dtype"] = "float32";
  return json.dump(2) + "\n";
}

std::string saved_generation_config(const Tokenizer& tokenizer) {
  Json json = Json::object();
  json["_from_model_config"] = true;
  set_token(json, "bos_token_id", tokenizer.bos_id());
  set_token(json, "eos_token_id", tokenizer.eos_id());
  set_token(json, "pad_token_id", tokenizer.pad_id());
  return json.dump(2) + "\n";
}

}  // namespace lode
