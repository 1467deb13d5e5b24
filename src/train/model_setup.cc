#include "train/model_setup.h"

#include "io/checkpoint.h"
#include "kernels/int8_matmul.h"
#include "models/gguf_config.h"
#include "models/gguf_load.h"
#include "models/hub.h"
#include "models/peft.h"
#include "models/vocabulary.h"
#include "models/weights.h"
#include "text/gguf_tokenizer.h"
#include "train/run_state.h"

namespace lode {
namespace {

std::string folder_of(FileSystem& files, const std::string& path) {
  if (files.is_directory(path)) return path;
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

// An adapter may have been trained with more rows than its base has.
ModelConfig read_config(FileSystem& files, const std::string& model_path, const std::string& adapter) {
  ModelConfig config = read_model_config(files, model_path);
  if (adapter.empty() || adapter.ends_with(".gguf")) return config;  // LoRA alone grows nothing
  const std::int64_t rows = read_peft_rows(files, adapter, config.names);
  if (rows > config.spec.vocab_size) grow_vocabulary(config, rows);
  return config;
}

Tokenizer read_tokenizer(FileSystem& files, const std::string& model_path,
                         const std::string& tokenizer_path) {
  const std::optional<std::string> gguf = find_gguf(files, model_path);
  const std::string source = !tokenizer_path.empty() ? tokenizer_path
                             : gguf                  ? *gguf
                                                     : folder_of(files, model_path);
  if (tokenizer_path.empty() && !gguf && !files.exists(join_path(source, "tokenizer.json"))) {
    fail(ErrorKind::data,
         "{}: there is no tokenizer.json in the model's folder; name one with tokenizer_name_or_path, or "
         "train one with "
         "`lode tokenizer train`",
         source);
  }
  const std::optional<std::string> gguf_tokenizer = find_gguf(files, source);
  return gguf_tokenizer ? tokenizer_from_gguf(GgufFile(files, *gguf_tokenizer))
                        : Tokenizer::load(files, source);
}

// The embedding and a head of its own, as freeze_extra_modules names them.
void add_tables(const ModelConfig& config, std::vector<std::string>& modules) {
  for (const std::string& weight : {config.names.embedding, config.names.head}) {
    if (config.spec.tied_head && weight == config.names.head) continue;
    const std::string module = weight.substr(0, weight.rfind('.'));
    modules.push_back(module.substr(module.rfind('.') + 1));
  }
}

void require_rows(const ModelConfig& config, const Tokenizer& tokenizer, std::string_view remedy) {
  if (tokenizer.vocab_size() <= config.spec.vocab_size) return;
  fail(ErrorKind::data,
       "{}: vocab_size is {}, but the tokenizer has ids up to {}: they do not belong together{}", config.file,
       config.spec.vocab_size, tokenizer.vocab_size() - 1, remedy);
}

void refuse_growth(const Recipe& recipe, const Tokenizer& tokenizer, std::int64_t rows,
                   std::string_view why) {
  fail(ErrorKind::usage, "{}: the tokenizer would have {} ids, the model has {} rows, and {}",
       !recipe.add_tokens.empty() ? "add_tokens" : "add_special_tokens", tokenizer.vocab_size(), rows, why);
}

}  // namespace

ModelParts read_model_parts(FileSystem& files, const std::string& model_path,
                            const std::string& tokenizer_path, const std::string& adapter) {
  ModelParts parts{read_config(files, model_path, adapter),
                   read_tokenizer(files, model_path, tokenizer_path)};
  require_rows(parts.config, parts.tokenizer, "");
  return parts;
}

ModelParts read_recipe_parts(FileSystem& files, const Recipe& recipe, const std::string& model_path) {
  ModelParts parts{
      read_config(files, model_path, recipe.adapter_name_or_path),
      read_tokenizer(files, model_path, resolve_model_path(files, recipe.tokenizer_name_or_path))};
  if (recipe.resize_vocab != true) {
    require_rows(parts.config, parts.tokenizer, "; resize_vocab: true would add rows for the tokenizer's");
  }
  const std::int64_t rows = parts.config.spec.vocab_size, before = parts.tokenizer.vocab_size();
  parts.tokenizer =
      parts.tokenizer.add_tokens(recipe.add_tokens).add_special_tokens(recipe.add_special_tokens);
  const std::int64_t tokens = parts.tokenizer.vocab_size();
  parts.new_tokens = recipe.resize_vocab.value_or(true) && tokens > std::min(before, rows);
  const std::string& adapter = recipe.adapter_name_or_path;
  if (parts.new_tokens && !adapter.empty()) {
    const bool trains_them = read_peft_rows(files, adapter, parts.config.names) > 0;
    if (tokens > rows || !trains_them) {
      refuse_growth(
          recipe, parts.tokenizer, rows,
          "the adapter to go on with was made for fewer tokens: merge it with `lode export --format "
          "safetensors` and train on the result");
    }
  }
  if (tokens <= rows) return parts;
  if (!parts.new_tokens)
    refuse_growth(recipe, parts.tokenizer, rows, "resize_vocab: false forbids adding rows: leave it out");
  grow_vocabulary(parts.config, padded_rows(tokens));
  return parts;
}

Model load_model(FileSystem& files, Engine& engine, const std::string& path,
                 const std::string& adapter_path) {
  std::string base = resolve_model_path(files, path), adapter = adapter_path;
  if (adapter.empty() && files.exists(join_path(base, kAdapterConfigFile))) {
    adapter = base;
    base = resolve_model_path(files, read_peft_base(files, adapter));
    if (base.empty()) {
      fail(ErrorKind::data,
           "{}: an adapter that names no base (base_model_name_or_path): give the base and --adapter",
           join_path(adapter, kAdapterConfigFile));
    }
  }
  // An adapter's folder may hold a tokenizer with tokens of its own.
  const bool own_tokenizer = !adapter.empty() && files.exists(join_path(adapter, "tokenizer.json"));
  ModelParts parts = read_model_parts(files, base, own_tokenizer ? adapter : "", adapter);
  report_model_facts(engine.facts(), parts.config.spec, false);
  WeightPolicy policy(false);
  policy.frozen_dtype = engine.dtype();
  std::optional<GgufFile> gguf;
  if (adapter.ends_with(".gguf")) gguf.emplace(files, adapter);
  if (gguf) {
    policy.adapter = read_gguf_adapter_spec(*gguf, parts.config);
  } else if (!adapter.empty()) {
    policy.adapter = read_peft_spec(files, adapter);
  }
  auto decoder =
      std::make_unique<Decoder>(engine.context(), parts.config.spec, parts.config.names, std::move(policy));
  load_model_weights(files, base, parts.config, *decoder, engine.context());
  if (gguf) {
    load_gguf_adapter(*gguf, parts.config, *decoder, engine.context());
  } else if (!adapter.empty()) {
    load_peft(files, adapter, engine.context(), *decoder);
  }
  return {std::move(parts.config), std::move(parts.tokenizer), std::move(decoder), base, adapter};
}

void require_adapter_tokenizer(FileSystem& files, const std::string& adapter, const Tokenizer& tokenizer) {
  const std::string file = join_path(adapter, "lode_state.json");
  if (!files.exists(file)) return;
  const RunState saved = RunState::from_json(read_checkpoint_state(files, adapter), file);
  if (saved.tokenizer_fingerprint == tokenizer.fingerprint()) return;
  fail(ErrorKind::data,
       "{}: the adapter was trained with another tokenizer (fingerprint {}) than the model's ({}): name its "
       "own with tokenizer_name_or_path",
       adapter, saved.tokenizer_fingerprint, tokenizer.fingerprint());
}

WeightPolicy weight_policy(FileSystem& files, const Recipe& recipe, const std::string& model_path,
                           const ModelParts& parts, DType compute) {
  using T = Recipe::Tuning;
  WeightPolicy policy(true);
  if (recipe.pure_bf16) policy.trained_dtype = DType::bf16;
  if (recipe.finetuning_type == T::full) return policy;
  policy.frozen_dtype = compute;
  if (recipe.finetuning_type == T::freeze) {
    policy.freeze = FreezeSpec{.trainable_layers = recipe.freeze_trainable_layers,
                               .modules = recipe.freeze_trainable_modules,
                               .extra_modules = recipe.freeze_extra_modules};
    if (parts.new_tokens) add_tables(parts.config, policy.freeze->extra_modules);
    return policy;
  }
  if (!recipe.adapter_name_or_path.empty()) {
    policy.adapter = read_peft_spec(files, recipe.adapter_name_or_path);
    policy.adapter->dropout = static_cast<float>(recipe.lora_dropout);
  } else {
    policy.adapter =
        AdapterSpec{.rank = recipe.lora_rank,
                    .alpha = recipe.lora_alpha.value_or(2.0 * static_cast<double>(recipe.lora_rank)),
                    .rslora = recipe.use_rslora,
                    .dropout = static_cast<float>(recipe.lora_dropout),
                    .targets = recipe.lora_target,
                    .additional_targets = recipe.additional_target,
                    .whole_tables = parts.new_tokens,
                    .tied_copies = parts.new_tokens};
  }
  const std::optional<std::string> gguf = find_gguf(files, model_path);
  if (recipe.quantization_bit) {
    quantize_linears(policy, *recipe.quantization_bit == 4 ? QuantFormat::nf4 : QuantFormat::int8);
  } else if (gguf) {
    keep_gguf_formats(GgufFile(files, *gguf), parts.config, policy);
  }
  return policy;
}

void choose_frozen_compute(Facts& facts, Recipe::FrozenCompute asked, DType compute, WeightPolicy& policy) {
  using F = Recipe::FrozenCompute;
  if (policy.all_trainable()) return;
  constexpr auto kFact = "frozen products";
  const std::string run(name_of(compute));
  if (asked == F::automatic) {
    facts.set({kFact, "auto", run, "the run's precision; frozen_compute: int8 asks for int8 arithmetic"});
  } else if (asked == F::bf16) {
    const bool same = compute == DType::bf16;
    facts.set({kFact, "bf16", run, same ? "asked" : "the run's precision is f32", !same});
  } else if (const Int8Path path = int8_matmul_path(); path.native) {
    policy.int8_products = true;
    facts.set({kFact, "int8", "int8",
               format("{}: {}; {}", path.chosen, path.why,
                      policy.adapter && !policy.format ? "weights are kept as int8 rows"
                                                       : "int8 forms are kept beside the weights")});
  } else {
    facts.set({kFact, "int8", run, format("int8 would be {}: {}", path.chosen, path.why), true});
  }
}

void load_values(FileSystem& files, const ModelConfig& config, const std::string& base,
                 const std::string& adapter, Decoder& decoder, Context& context) {
  if (base.empty()) {
    decoder.initialise(context, context.seed);
  } else {
    load_model_weights(files, base, config, decoder, context);
  }
  if (!decoder.parameters().policy().adapter) return;
  if (adapter.empty()) {
    decoder.initialise_adapters(context, context.seed);
  } else {
    load_peft(files, adapter, context, decoder);
  }
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

}  // namespace lode
