// The generic decoder: pre-norm blocks of causal attention and an MLP over a packed token stream. One forward
// serves training and decoding.
#pragma once

#include <vector>

#include "nn/decoder_spec.h"
#include "nn/linear.h"
#include "nn/names.h"
#include "ops/kv_cache.h"
#include "ops/linear_cross_entropy.h"
#include "ops/norm.h"
#include "ops/rotary.h"

namespace lode {

class Decoder {
 public:
  // Parameters are allocated, not filled. trainable: they have gradients.
  Decoder(Context& context, const DecoderSpec& spec, const DecoderNames& names, bool trainable);

  const DecoderSpec& spec() const { return spec_; }
  const ParameterList& parameters() const { return parameters_; }
  ParameterList& parameters() { return parameters_; }

  // Hugging Face's initialisation from the seed.
  void initialise(Context& context, std::uint64_t seed);

  // The final normalised hidden states [T, hidden]. cache: nullptr when training; otherwise the batch is one
  // segment that continues the cached sequence. The batch must live until backward has run.
  Value forward(Context& context, const Batch& batch, KvCache* cache = nullptr);

  // Losses of a micro-batch; with a tape also its gradients, after context.tape->backward(). loss_scale: 1 /
  // number of target tokens of the global batch.
  TokenLosses loss(Context& context, const Batch& batch, float loss_scale);

  // Logits [1, vocab] f32 of the last row of hidden states.
  Tensor last_logits(Context& context, const Value& hidden);

  // Matrix FLOPs of one training step's forward and backward over these segments: each product once at 2 M N
  // K, causal attention at half its square, the head included, backward twice the forward; recomputation not
  // counted.
  double training_flops(const Segments& segments) const;
  double training_flops_per_token(std::int64_t sample_length) const;

 private:
  struct Layer {
    NormParameters attention_norm, mlp_norm;
    Linear qkv, output, up, down;  // up of a gated MLP: gate | up
  };
  NormParameters add_norm_parameters(const std::string& name);
  Linear add_linear(const DecoderNames& names, std::vector<LinearPart> parts, std::int64_t cols,
                    bool with_bias, const Init& init);
  void add_layer(const DecoderNames& names, std::int64_t index);
  Value attend(Context& context, const Layer& layer, std::int64_t index, const Value& x, const Batch& batch,
               KvCache* cache);
  Value mlp(Context& context, const Layer& layer, const Value& x, const Batch& batch);

  DecoderSpec spec_;
  ParameterList parameters_;
  Weight *embedding_ = nullptr, *positions_ = nullptr, *head_ = nullptr;
  NormParameters final_norm_;
  std::vector<Layer> layers_;
  RotaryTable rotary_;
};

}  // namespace lode
