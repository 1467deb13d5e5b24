#include "models/llama_like.h"

#include <cmath>

namespace lode {
namespace {

void read_heads(const ConfigReader& config, const LlamaDefaults& defaults, DecoderSpec& spec) {
  spec.heads = config.integer("num_attention_heads", defaults.num_attention_heads);
  const bool same = defaults.num_key_value_heads == 0 || config.is_null("num_key_value_heads");
  spec.kv_heads = config.integer("num_key_value_heads", same ? spec.heads : defaults.num_key_value_heads);
  if (spec.heads % spec.kv_heads != 0) {
    config.refuse("num_key_value_heads",
                  format("{} does not divide num_attention_heads {}", spec.kv_heads, spec.heads));
  }
  const bool derived =
      config.find("head_dim") == nullptr && (defaults.head_dim == 0 || config.is_null("head_dim"));
  if (derived && spec.hidden % spec.heads != 0) {
    config.refuse("num_attention_heads",
                  format("{} does not divide hidden_size {}", spec.heads, spec.hidden));
  }
  spec.head_dim = config.integer("head_dim", derived ? spec.hidden / spec.heads : defaults.head_dim);
  if (spec.head_dim % 2 != 0)
    config.refuse("head_dim", format("{} is odd; rotary positions need pairs", spec.head_dim));
}

}  // namespace

DecoderSpec llama_like_spec(const ConfigReader& config, const LlamaDefaults& defaults) {
  DecoderSpec spec;
  spec.vocab_size = config.integer("vocab_size", defaults.vocab_size);
  spec.hidden = config.integer("hidden_size", defaults.hidden_size);
  spec.intermediate = config.integer("intermediate_size", defaults.intermediate_size);
  spec.layers = config.integer("num_hidden_layers", defaults.num_hidden_layers);
  read_heads(config, defaults, spec);
  spec.max_positions = config.integer("max_position_embeddings", defaults.max_position_embeddings);
  check_size(spec, config.file());
  spec.norm = NormKind::rms;
  spec.norm_eps = static_cast<float>(config.positive("rms_norm_eps", 1e-6));
  spec.rotary = read_rotary(config, {spec.head_dim, spec.max_positions, defaults.rope_theta});
  spec.attention_scale = 1 / std::sqrt(static_cast<double>(spec.head_dim));
  spec.activation = read_activation(config, defaults.activation_key, defaults.activation);
  spec.tied_head = config.boolean("tie_word_embeddings", defaults.tie_word_embeddings);
  spec.attention_dropout = static_cast<float>(config.probability("attention_dropout", 0));
  spec.init_deviation = config.positive("initializer_range", 0.02);
  return spec;
}

DecoderNames llama_like_names() {
  return {.embedding = "model.embed_tokens.weight",
          .attention_norm = "model.layers.{}.input_layernorm.weight",
          .mlp_norm = "model.layers.{}.post_attention_layernorm.weight",
          .final_norm = "model.norm.weight",
          .q = "model.layers.{}.self_attn.q_proj.weight",
          .k = "model.layers.{}.self_attn.k_proj.weight",
          .v = "model.layers.{}.self_attn.v_proj.weight",
          .output = "model.layers.{}.self_attn.o_proj.weight",
          .gate = "model.layers.{}.mlp.gate_proj.weight",
          .up = "model.layers.{}.mlp.up_proj.weight",
          .down = "model.layers.{}.mlp.down_proj.weight",
          .head = "lm_head.weight"};
}

std::vector<bool> read_sliding_layers(const ConfigReader& config, std::int64_t layers,
                                      const std::function<bool(std::int64_t)>& slides) {
  std::vector<bool> sliding;
  const Json* types = config.find("layer_types");
  if (types == nullptr) {
    for (std::int64_t i = 0; i < layers; ++i) sliding.push_back(slides(i));
    return sliding;
  }
  if (!types->is_array() || static_cast<std::int64_t>(types->size()) != layers)
    config.refuse("layer_types", format("expected a list of {} names, one a layer", layers));
  for (const Json& type : types->as_array()) {
    const std::string name = type.is_string() ? type.as_string() : type.dump();
    if (name != "full_attention" && name != "sliding_attention") {
      config.refuse("layer_types",
                    format("\"{}\" is not supported; known: full_attention, sliding_attention", name));
    }
    sliding.push_back(name == "sliding_attention");
  }
  return sliding;
}

std::int64_t read_window(const ConfigReader& config, std::int64_t otherwise) {
  if (config.is_null("sliding_window")) return 0;
  return config.integer("sliding_window", otherwise, 0);
}

void set_windows(DecoderSpec& spec, const std::vector<bool>& sliding, std::int64_t window) {
  spec.layer_specs.resize(sliding.size());
  for (std::size_t i = 0; i < sliding.size(); ++i) spec.layer_specs[i].window = sliding[i] ? window : 0;
}

void set_qwen_windows(const ConfigReader& config, DecoderSpec& spec) {
  const std::int64_t window = config.boolean("use_sliding_window", false) ? read_window(config, 4096) : 0;
  const std::int64_t first = config.integer("max_window_layers", 28, 0);
  set_windows(spec, read_sliding_layers(config, spec.layers, [=](std::int64_t i) { return i >= first; }),
              window);
}

}  // namespace lode
