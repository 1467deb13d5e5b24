// Llama (Touvron et al. 2023, arXiv 2302.13971) and its fine-tunes; Hugging Face's LlamaForCausalLM.
#include <cmath>

#include "models/family.h"

namespace lode {
namespace {

// Keys of version 4 (rope_theta, rope_scaling) and 5 (rope_parameters) of the config; the newer wins.
RotarySpec read_rotary(const ConfigReader& config, std::int64_t head_dim, std::int64_t max_positions) {
  RotarySpec rotary;
  rotary.rotary_dim = head_dim;
  rotary.theta = config.positive("rope_theta", 10000);
  const char* key = config.find("rope_parameters") != nullptr ? "rope_parameters" : "rope_scaling";
  const Json* scaling = config.find(key);
  if (scaling == nullptr) return rotary;
  if (!scaling->is_object()) config.refuse(key, format("expected an object, found {}", scaling->dump()));
  const ConfigReader reader(*scaling, format("{}: {}", config.file(), key));
  rotary.theta = reader.positive("rope_theta", rotary.theta);
  const std::string type = reader.text("rope_type", reader.text("type", "default"));
  if (type == "default") return rotary;
  if (type == "linear") {
    rotary.scaling = RotarySpec::Scaling::linear;
  } else if (type == "llama3") {
    rotary.scaling = RotarySpec::Scaling::llama3;
    rotary.low_freq_factor = reader.positive("low_freq_factor", 1);
    rotary.high_freq_factor = reader.positive("high_freq_factor", 4);
    if (rotary.high_freq_factor <= rotary.low_freq_factor) {
      reader.refuse("high_freq_factor", "must be larger than low_freq_factor");
    }
    rotary.original_max_positions = reader.integer("original_max_position_embeddings", max_positions);
  } else {
    reader.refuse("rope_type", format("\"{}\" is not supported; known: default, linear, llama3", type));
  }
  if (reader.find("factor") == nullptr)
    reader.refuse("factor", format("is missing; rope_type {} needs it", type));
  rotary.factor = reader.positive("factor", 1);
  return rotary;
}

DecoderSpec llama_spec(const Json& json, const std::string& file) {
  const ConfigReader config(json, file);
  DecoderSpec spec;
  spec.vocab_size = config.integer("vocab_size", 32000);
  spec.hidden = config.integer("hidden_size", 4096);
  spec.intermediate = config.integer("intermediate_size", 11008);
  spec.layers = config.integer("num_hidden_layers", 32);
  spec.heads = config.integer("num_attention_heads", 32);
  spec.kv_heads = config.integer("num_key_value_heads", spec.heads);
  if (spec.heads % spec.kv_heads != 0) {
    config.refuse("num_key_value_heads",
                  format("{} does not divide num_attention_heads {}", spec.kv_heads, spec.heads));
  }
  if (config.find("head_dim") == nullptr && spec.hidden % spec.heads != 0) {
    config.refuse("num_attention_heads",
                  format("{} does not divide hidden_size {}", spec.heads, spec.hidden));
  }
  spec.head_dim = config.integer("head_dim", spec.hidden / spec.heads);
  if (spec.head_dim % 2 != 0)
    config.refuse("head_dim", format("{} is odd; rotary positions need pairs", spec.head_dim));
  spec.max_positions = config.integer("max_position_embeddings", 2048);
  spec.norm = NormKind::rms;
  spec.norm_eps = static_cast<float>(config.positive("rms_norm_eps", 1e-6));
  spec.rotary = read_rotary(config, spec.head_dim, spec.max_positions);
  spec.qkv_bias = spec.output_bias = config.boolean("attention_bias", false);
  spec.mlp_bias = config.boolean("mlp_bias", false);
  spec.attention_scale = 1 / std::sqrt(static_cast<double>(spec.head_dim));
  spec.activation = read_activation(config, "hidden_act", "silu");
  if (spec.activation != Activation::silu) config.refuse("hidden_act", "a gated MLP has silu only");
  spec.tied_head = config.boolean("tie_word_embeddings", false);
  spec.attention_dropout = static_cast<float>(config.probability("attention_dropout", 0));
  spec.init_deviation = config.positive("initializer_range", 0.02);
  return spec;
}

DecoderNames llama_names() {
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

}  // namespace

extern const Family kLlama;
const Family kLlama{"llama", "LlamaForCausalLM", llama_spec, llama_names};

}  // namespace lode
