// Small decoders of all kinds without files, and batches for them.
#pragma once

#include <memory>

#include "core/rng.h"
#include "nn/decoder.h"

namespace lode::test {

inline DecoderSpec llama_spec() {
  DecoderSpec spec;
  spec.vocab_size = 64;
  spec.hidden = 32;
  spec.intermediate = 40;
  spec.layers = 2;
  spec.heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = 8;
  spec.max_positions = 128;
  spec.rotary.rotary_dim = 8;
  spec.attention_scale = 0.35355339059327373;
  spec.init_deviation = 0.2;  // large beside real models: attention is not flat
  return spec;
}

inline DecoderSpec gpt2_spec() {
  DecoderSpec spec = llama_spec();
  spec.kv_heads = 4;
  spec.norm = NormKind::layer;
  spec.norm_eps = 1e-5f;
  spec.norm_bias = spec.qkv_bias = spec.output_bias = spec.mlp_bias = true;
  spec.position = PositionKind::learned;
  spec.mlp = MlpKind::plain;
  spec.activation = Activation::gelu_tanh;
  spec.tied_head = true;
  spec.scale_residual_init = true;
  return spec;
}

// Windows, two rotary tables, norms of heads and after sub-layers, weights centred on zero, gelu gates.
inline DecoderSpec gemma_spec() {
  DecoderSpec spec = llama_spec();
  spec.layers = 3;
  spec.norm_offset = 1;
  spec.head_norms = spec.post_norms = true;
  spec.activation = Activation::gelu_tanh;
  spec.embedding_scale = 5.65;
  spec.tied_head = true;
  spec.rotary.scaling = RotarySpec::Scaling::linear;
  spec.rotary.factor = 4;
  spec.local_rotary = {.theta = 100, .rotary_dim = 8};
  spec.layer_specs = {{.window = 6, .rotary = LayerRotary::local},
                      {.window = 0, .rotary = LayerRotary::global},
                      {.window = 6, .rotary = LayerRotary::none}};
  return spec;
}

// Angles that depend on the length of each sample, beyond 16 tokens.
inline DecoderSpec by_length_spec(RotarySpec::Scaling scaling) {
  DecoderSpec spec = llama_spec();
  spec.rotary = {.theta = 10000,
                 .rotary_dim = 8,
                 .scaling = scaling,
                 .factor = 2,
                 .original_max_positions = 16,
                 .attention_factor = 1.2,
                 .short_factors = {1, 1.5, 2, 1},
                 .long_factors = {2, 3, 4, 5}};
  return spec;
}

inline DecoderNames names_of(const DecoderSpec& spec) {
  DecoderNames names{.embedding = "embedding.weight",
                     .positions = "positions.weight",
                     .attention_norm = "{}.norm1.weight",
                     .mlp_norm = "{}.norm2.weight",
                     .final_norm = "norm.weight",
                     .attention_post_norm = "{}.norm3.weight",
                     .mlp_post_norm = "{}.norm4.weight",
                     .q = "{}.q.weight",
                     .k = "{}.k.weight",
                     .v = "{}.v.weight",
                     .output = "{}.o.weight",
                     .q_norm = "{}.q_norm.weight",
                     .k_norm = "{}.k_norm.weight",
                     .gate = "{}.gate.weight",
                     .up = "{}.up.weight",
                     .down = "{}.down.weight",
                     .head = "head.weight"};
  if (spec.position == PositionKind::learned) names.qkv = "{}.qkv.weight";
  return names;
}

struct TinyDecoder {
  Memory memory;
  Facts facts;
  Workspace workspace{memory};
  Context context{.memory = memory, .facts = facts, .kernel = {1, &workspace}};
  Decoder decoder;

  explicit TinyDecoder(const DecoderSpec& spec, DType dtype = DType::f32, int threads = 1,
                       bool trainable = true)
      : decoder(context, spec, names_of(spec), trainable) {
    context.dtype = dtype;
    context.kernel.threads = threads;
    decoder.initialise(context, 3);
    if (trainable) decoder.parameters().allocate_gradients();
  }
};

struct Sample {
  std::int64_t id;
  std::vector<std::int32_t> tokens;
};

// Samples behind each other, each token predicting the next; padded to a multiple of `multiple`.
inline Batch pack(const std::vector<Sample>& samples, std::size_t multiple = kTokenMultiple) {
  std::vector<std::int32_t> tokens, labels, lengths;
  std::vector<std::int64_t> ids;
  for (const Sample& sample : samples) {
    tokens.insert(tokens.end(), sample.tokens.begin(), sample.tokens.end());
    labels.insert(labels.end(), sample.tokens.begin() + 1, sample.tokens.end());
    labels.push_back(kIgnoreLabel);
    lengths.push_back(static_cast<std::int32_t>(sample.tokens.size()));
    ids.push_back(sample.id);
  }
  const std::size_t total = (tokens.size() + multiple - 1) / multiple * multiple;
  tokens.resize(total, 0);
  labels.resize(total, kIgnoreLabel);
  std::vector<float> weights;
  for (const std::int32_t label : labels) weights.push_back(label == kIgnoreLabel ? 0.0f : 1.0f);
  return Batch(tokens, labels, weights, Segments(lengths, ids, static_cast<std::int32_t>(total)));
}

inline std::vector<Sample> random_samples(const std::vector<int>& lengths, std::uint64_t vocab) {
  std::vector<Sample> samples;
  Rng rng(17, "samples");
  for (const int length : lengths) {
    samples.push_back({static_cast<std::int64_t>(100 + samples.size()), {}});
    for (int i = 0; i < length; ++i)
      samples.back().tokens.push_back(static_cast<std::int32_t>(rng.below(vocab)));
  }
  return samples;
}

}  // namespace lode::test
