// GPT-2 (Radford et al. 2019): learned positions, LayerNorm, biases, a plain MLP, a tied head; Hugging Face's
// GPT2LMHeadModel, whose linear weights are stored transposed.
#include <cmath>

#include "models/family.h"

namespace lode {
namespace {

DecoderSpec gpt2_spec(const Json& json, const std::string& file) {
  const ConfigReader config(json, file);
  DecoderSpec spec;
  spec.vocab_size = config.integer("vocab_size", 50257);
  spec.hidden = config.integer("n_embd", 768);
  spec.intermediate = config.integer("n_inner", 4 * spec.hidden);
  spec.layers = config.integer("n_layer", 12);
  spec.heads = spec.kv_heads = config.integer("n_head", 12);
  if (spec.hidden % spec.heads != 0) {
    config.refuse("n_head", format("{} does not divide n_embd {}", spec.heads, spec.hidden));
  }
  spec.head_dim = spec.hidden / spec.heads;
  spec.max_positions = config.integer("n_positions", 1024);
  spec.norm = NormKind::layer;
  spec.norm_eps = static_cast<float>(config.positive("layer_norm_epsilon", 1e-5));
  spec.norm_bias = spec.qkv_bias = spec.output_bias = spec.mlp_bias = true;
  spec.position = PositionKind::learned;
  const bool scaled = config.boolean("scale_attn_weights", true);
  spec.attention_scale = scaled ? 1 / std::sqrt(static_cast<double>(spec.head_dim)) : 1;
  spec.scale_by_inverse_layer = config.boolean("scale_attn_by_inverse_layer_idx", false);
  spec.mlp = MlpKind::plain;
  spec.activation = read_activation(config, "activation_function", "gelu_new");
  if (spec.activation == Activation::silu)
    config.refuse("activation_function", "a plain MLP has gelu forms only");
  spec.tied_head = config.boolean("tie_word_embeddings", true);
  spec.embedding_dropout = static_cast<float>(config.probability("embd_pdrop", 0.1));
  spec.residual_dropout = static_cast<float>(config.probability("resid_pdrop", 0.1));
  spec.attention_dropout = static_cast<float>(config.probability("attn_pdrop", 0.1));
  spec.init_deviation = config.positive("initializer_range", 0.02);
  spec.scale_residual_init = true;
  return spec;
}

DecoderNames gpt2_names() {
  return {.embedding = "transformer.wte.weight",
          .positions = "transformer.wpe.weight",
          .attention_norm = "transformer.h.{}.ln_1.weight",
          .mlp_norm = "transformer.h.{}.ln_2.weight",
          .final_norm = "transformer.ln_f.weight",
          .qkv = "transformer.h.{}.attn.c_attn.weight",
          .output = "transformer.h.{}.attn.c_proj.weight",
          .up = "transformer.h.{}.mlp.c_fc.weight",
          .down = "transformer.h.{}.mlp.c_proj.weight",
          .head = "lm_head.weight",
          .linear_layout = FileLayout::transposed};
}

}  // namespace

extern const Family kGpt2;
const Family kGpt2{"gpt2", "GPT2LMHeadModel", gpt2_spec, gpt2_names};

}  // namespace lode
