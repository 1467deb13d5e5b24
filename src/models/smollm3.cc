// SmolLM3: llama in which every fourth layer has no positions; Hugging Face's SmolLM3ForCausalLM.
#include "models/llama_like.h"

namespace lode {
namespace {

// no_rope_layers: 1 where a layer has rotary positions (not where it has none).
std::vector<bool> read_rotating(const ConfigReader& config, std::int64_t layers) {
  std::vector<bool> rotating;
  const Json* list = config.find("no_rope_layers");
  const std::int64_t interval = config.integer("no_rope_layer_interval", 4);
  if (list != nullptr && (!list->is_array() || static_cast<std::int64_t>(list->size()) < layers))
    config.refuse("no_rope_layers", format("expected a list of {} numbers, one a layer", layers));
  for (std::int64_t i = 0; i < layers; ++i) {
    if (list == nullptr) {
      rotating.push_back((i + 1) % interval != 0);
      continue;
    }
    const Json& value = list->as_array()[static_cast<std::size_t>(i)];
    if (!value.is_int() || value.as_int() < 0 || value.as_int() > 1)
      config.refuse("no_rope_layers", format("expected 0 or 1, found {}", value.dump()));
    rotating.push_back(value.as_int() == 1);
  }
  return rotating;
}

DecoderSpec smollm3_spec(const Json& json, const std::string& file) {
  const ConfigReader config(json, file);
  LlamaDefaults defaults;
  defaults.vocab_size = 128256;
  defaults.hidden_size = 2048;
  defaults.num_hidden_layers = 36;
  defaults.num_attention_heads = 16;
  defaults.num_key_value_heads = 4;
  defaults.max_position_embeddings = 32768;
  defaults.rope_theta = 2e6;
  defaults.tie_word_embeddings = true;
  DecoderSpec spec = llama_like_spec(config, defaults);
  spec.qkv_bias = spec.output_bias = config.boolean("attention_bias", false);
  spec.mlp_bias = config.boolean("mlp_bias", false);
  const std::vector<bool> rotating = read_rotating(config, spec.layers);
  const std::int64_t window = read_window(config, 0);
  const bool slides = config.boolean("use_sliding_window", false) && window > 0;
  const auto without_positions = [&](std::int64_t i) {
    return slides && !rotating[static_cast<std::size_t>(i)];
  };
  set_windows(spec, read_sliding_layers(config, spec.layers, without_positions), window);
  for (std::size_t i = 0; i < rotating.size(); ++i)
    spec.layer_specs[i].rotary = rotating[i] ? LayerRotary::global : LayerRotary::none;
  return spec;
}

}  // namespace

extern const Family kSmolLm3;
const Family kSmolLm3{"smollm3", "SmolLM3ForCausalLM", smollm3_spec, llama_like_names};

}  // namespace lode
