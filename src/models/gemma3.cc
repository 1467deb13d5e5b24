// Gemma 3, text only (Gemma Team 2025, arXiv 2503.19786): norms centred on zero before and after each
// sub-layer and on heads, scaled embeddings, gelu gates, five sliding layers with their own rotary positions
// to each full one; Hugging Face's Gemma3ForCausalLM.
#include <cmath>

#include "models/llama_like.h"

namespace lode {
namespace {

void refuse_unsupported(const ConfigReader& config) {
  for (const std::string_view key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (config.find(key) != nullptr) config.refuse(key, "soft caps are not supported in gemma3_text");
  }
  if (config.boolean("use_bidirectional_attention", false))
    config.refuse("use_bidirectional_attention", "a model for embeddings, not for generating text");
}

void read_positions(const ConfigReader& config, DecoderSpec& spec) {
  constexpr double kGlobal = 1e6, kLocal = 1e4;
  const RotaryDefaults local{spec.head_dim, spec.max_positions,
                             config.positive("rope_local_base_freq", kLocal)};
  const RotaryDefaults global{spec.head_dim, spec.max_positions, config.positive("rope_theta", kGlobal)};
  const Json* full = nested_rotary(config, "full_attention");
  const Json* sliding = nested_rotary(config, "sliding_attention");
  if (full != nullptr)
    spec.rotary = read_rotary_object(config, *full, "rope_parameters: full_attention", global);
  // The local positions are never scaled by rope_scaling.
  spec.local_rotary = read_rotary_object(config, sliding != nullptr ? *sliding : Json::object(),
                                         "rope_parameters: sliding_attention", local);
}

DecoderSpec gemma3_spec(const Json& json, const std::string& file) {
  const ConfigReader config(json, file);
  refuse_unsupported(config);
  LlamaDefaults defaults;
  defaults.vocab_size = 262208;
  defaults.hidden_size = 2304;
  defaults.intermediate_size = 9216;
  defaults.num_hidden_layers = 26;
  defaults.num_attention_heads = 8;
  defaults.num_key_value_heads = 4;
  defaults.head_dim = 256;
  defaults.max_position_embeddings = 131072;
  defaults.rope_theta = 1e6;
  defaults.tie_word_embeddings = true;
  defaults.activation_key = "hidden_activation";
  defaults.activation = "gelu_pytorch_tanh";
  DecoderSpec spec = llama_like_spec(config, defaults);
  spec.norm_offset = 1;
  spec.head_norms = spec.post_norms = true;
  spec.embedding_scale = std::sqrt(static_cast<double>(spec.hidden));
  spec.attention_scale = 1 / std::sqrt(config.positive("query_pre_attn_scalar", 256));
  spec.qkv_bias = spec.output_bias = config.boolean("attention_bias", false);
  read_positions(config, spec);

  const std::int64_t pattern = config.integer("sliding_window_pattern", 6);
  const std::vector<bool> sliding =
      read_sliding_layers(config, spec.layers, [=](std::int64_t i) { return (i + 1) % pattern != 0; });
  set_windows(spec, sliding, read_window(config, 4096));
  for (std::size_t i = 0; i < sliding.size(); ++i)
    spec.layer_specs[i].rotary = sliding[i] ? LayerRotary::local : LayerRotary::global;
  return spec;
}

DecoderNames gemma3_names() {
  DecoderNames names = llama_like_names();
  names.attention_post_norm = "model.layers.{}.post_attention_layernorm.weight";
  names.mlp_norm = "model.layers.{}.pre_feedforward_layernorm.weight";
  names.mlp_post_norm = "model.layers.{}.post_feedforward_layernorm.weight";
  names.q_norm = "model.layers.{}.self_attn.q_norm.weight";
  names.k_norm = "model.layers.{}.self_attn.k_norm.weight";
  return names;
}

}  // namespace

extern const Family kGemma3;
const Family kGemma3{"gemma3_text", "Gemma3ForCausalLM", gemma3_spec, gemma3_names};

}  // namespace lode
