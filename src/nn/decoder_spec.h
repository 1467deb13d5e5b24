// The descriptor of the generic decoder. A model family turns its Hugging Face config into one (src/models);
// what this cannot say becomes a new field, for every family.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/norm.h"

namespace lode {

enum class Activation { silu, gelu_erf, gelu_tanh };
enum class MlpKind { gated, plain };  // down(act(gate(x)) * up(x)); down(act(up(x)))
enum class PositionKind { rotary, learned };

// Frequencies of rotary positions: theta^(-2j/R), scaled as Hugging Face's rope types of the same names.
struct RotarySpec {
  double theta = 10000;
  std::int64_t rotary_dim = 0;  // R <= head_dim
  enum class Scaling { none, linear, dynamic, yarn, longrope, llama3 } scaling = Scaling::none;
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  std::int64_t original_max_positions = 0;  // llama3, yarn, longrope; dynamic: the length it begins beyond
  double attention_factor = 1;              // of cos and sin
  double beta_fast = 32, beta_slow = 1;     // yarn
  bool truncate = true;                     // yarn
  std::vector<double> short_factors, long_factors;  // longrope: R/2 each

  // Frequencies depend on the length of the sequence.
  bool by_length() const { return scaling == Scaling::dynamic || scaling == Scaling::longrope; }
};

enum class LayerRotary { global, local, none };  // which of the two tables, or no positions at all

struct LayerSpec {
  std::int64_t window = 0;  // keys a token attends to, its own included; 0: all
  LayerRotary rotary = LayerRotary::global;
};

struct DecoderSpec {
  std::string model_type;
  std::int64_t vocab_size = 0, hidden = 0, intermediate = 0, layers = 0;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t max_positions = 0;
  NormKind norm = NormKind::rms;
  float norm_eps = 1e-6f;
  bool norm_bias = false;
  float norm_offset = 0;    // added to the weights of all norms
  bool head_norms = false;  // RMSNorm of each query and key head before the rotation
  bool post_norms = false;  // a norm on what each sub-layer adds to the residual stream
  PositionKind position = PositionKind::rotary;
  RotarySpec rotary, local_rotary;
  std::vector<LayerSpec> layer_specs;  // one a layer, or none: all as LayerSpec's defaults
  bool qkv_bias = false, output_bias = false, mlp_bias = false;
  double attention_scale = 1;           // of scores
  bool scale_by_inverse_layer = false;  // additionally 1 / (layer + 1)
  MlpKind mlp = MlpKind::gated;
  Activation activation = Activation::silu;
  bool tied_head = false;
  double embedding_scale = 1;  // rounded to the activations' dtype
  float embedding_dropout = 0, residual_dropout = 0;
  float attention_dropout = 0;  // asked for by the config; no kernel does it: reported, never applied
  double init_deviation = 0.02;
  bool scale_residual_init = false;  // projections back into the residual stream: / sqrt(2 * layers)

  LayerSpec layer(std::int64_t index) const {
    return layer_specs.empty() ? LayerSpec() : layer_specs[static_cast<std::size_t>(index)];
  }
};

}  // namespace lode
