// The descriptor of the generic decoder. A model family turns its Hugging Face config into one (src/models);
// what this cannot say becomes a new field, for every family.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/norm.h"

namespace lode {

enum class Activation { silu, gelu_erf, gelu_tanh };
enum class MlpKind { gated, plain };  // down(act(gate(x)) * up(x)); down(act(up(x)))
enum class PositionKind { rotary, learned };

// Frequencies of rotary positions: theta^(-2j/R), scaled.
struct RotarySpec {
  double theta = 10000;
  std::int64_t rotary_dim = 0;  // R <= head_dim
  enum class Scaling { none, linear, llama3 } scaling = Scaling::none;
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  std::int64_t original_max_positions = 0;           // llama3
};

struct DecoderSpec {
  std::string model_type;
  std::int64_t vocab_size = 0, hidden = 0, intermediate = 0, layers = 0;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t max_positions = 0;
  NormKind norm = NormKind::rms;
  float norm_eps = 1e-6f;
  bool norm_bias = false;
  PositionKind position = PositionKind::rotary;
  RotarySpec rotary;
  bool qkv_bias = false, output_bias = false, mlp_bias = false;
  double attention_scale = 1;           // of scores
  bool scale_by_inverse_layer = false;  // additionally 1 / (layer + 1)
  MlpKind mlp = MlpKind::gated;
  Activation activation = Activation::silu;
  bool tied_head = false;
  float embedding_dropout = 0, residual_dropout = 0;
  float attention_dropout = 0;  // asked for by the config; no kernel does it: reported, never applied
  double init_deviation = 0.02;
  bool scale_residual_init = false;  // projections back into the residual stream: / sqrt(2 * layers)
};

}  // namespace lode
