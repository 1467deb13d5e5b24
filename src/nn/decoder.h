// The generic decoder: pre-norm blocks of causal attention and an MLP over a packed token stream. One forward
// serves training and decoding.
#pragma once

#include <memory>
#include <vector>

#include "nn/activation_policy.h"
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
  // Parameters are allocated, not filled. policy: which are trained and how the others are kept; true: all
  // are trained, false: none. Throws Error(usage) for names in the policy that the model does not have.
  Decoder(Context& context, const DecoderSpec& spec, const DecoderNames& names, WeightPolicy policy);

  const DecoderSpec& spec() const { return spec_; }
  const ParameterList& parameters() const { return parameters_; }
  ParameterList& parameters() { return parameters_; }

  // NEFTune's alpha: noise on the embeddings in training; 0: none.
  void set_embedding_noise(float alpha) { embedding_noise_ = alpha; }

  // From the next forward on.
  void set_activation_policy(const ActivationPolicy& policy) { activations_ = policy; }
  const ActivationPolicy& activation_policy() const { return activations_; }
  // false: every run of a layer builds the batch's segments again, to measure what sharing them saves.
  void set_metadata_cache(bool shared) { shares_segments_ = shared; }
  std::int64_t segments_rebuilt() const { return segments_rebuilt_; }
  // Matrix FLOPs done again by backwards so far, counted as training_flops counts.
  double recomputed_flops() const { return recomputed_flops_; }

  // Hugging Face's initialisation from the seed, adapters included.
  void initialise(Context& context, std::uint64_t seed);
  // The adapters alone: PEFT's initialisation, which changes nothing.
  void initialise_adapters(Context& context, std::uint64_t seed);

  // The final normalised hidden states [T, hidden]. cache: nullptr when training; otherwise the batch is one
  // segment that continues the cached sequence. The batch must live until backward has run; one
  // that holds other segments by then is an Error(internal).
  Value forward(Context& context, const Batch& batch, KvCache* cache = nullptr);

  // Losses of a micro-batch; with a tape also its gradients, after context.tape->backward(). loss_scale: 1 /
  // number of target tokens of the global batch.
  TokenLosses loss(Context& context, const Batch& batch, float loss_scale);

  // Logits [1, vocab] f32 of the last row of hidden states.
  Tensor last_logits(Context& context, const Value& hidden);

  // Matrix FLOPs of one training step's forward and backward over these segments, of whose tokens `targets`
  // have a target: each product once at 2 M N K, causal attention at half its square within each layer's
  // window, the head for targets only, backward twice the forward (once for frozen weights); recomputation
  // not counted. Per token: all are targets.
  double training_flops(const Segments& segments, std::int64_t targets) const;
  double training_flops_per_token(std::int64_t sample_length) const;
  // The same if all were trained.
  double full_training_flops_per_token(std::int64_t sample_length) const;

 private:
  double layer_weights() const;  // in a layer's products
  double head_weights() const;
  double attention_flops(const Segments& segments) const;  // forward and backward
  struct Layer {
    LayerSpec spec;
    NormParameters attention_norm, mlp_norm;
    NormParameters attention_post_norm, mlp_post_norm;  // of models with post_norms
    NormParameters q_norm, k_norm;                      // of models with head_norms
    Linear qkv, output, up, down;                       // up of a gated MLP: gate | up
  };
  NormParameters add_norm_parameters(const std::string& name, std::int64_t size);
  Linear add_linear(const DecoderNames& names, std::vector<LinearPart> parts, std::int64_t cols,
                    bool with_bias, const Init& init);
  void add_layer(const DecoderNames& names, std::int64_t index);
  void prepare_rotary(const Segments& segments, Memory& memory);
  // The residual stream, and what the last sub-layer adds to it: summed by the norm that follows.
  struct Flow {
    Value h, delta;
  };
  Flow block(Context& context, std::int64_t index, Flow in, const Batch& batch, KvCache* cache);
  Flow recomputed_block(Context& context, std::int64_t index, Flow in, const Batch& batch);
  SavePolicy selective(bool chosen) const;
  const Batch& batch_of_layer(const Batch& batch);
  double block_forward_flops(std::int64_t index, const Segments& segments) const;
  Value attend(Context& context, const Layer& layer, std::int64_t index, const Value& x, const Batch& batch,
               KvCache* cache);
  Value mlp(Context& context, const Layer& layer, const Value& x, const Batch& batch);

  DecoderSpec spec_;
  ParameterList parameters_;
  Embedding embedding_;
  Weight* positions_ = nullptr;
  Head head_;
  float embedding_noise_ = 0;
  ActivationPolicy activations_;
  double recomputed_flops_ = 0;
  bool shares_segments_ = true;
  std::int64_t segments_rebuilt_ = 0;
  std::vector<std::unique_ptr<Batch>> rebuilt_;  // since the last forward, for its backward
  NormParameters final_norm_;
  std::vector<Layer> layers_;
  RotaryTable rotary_, local_rotary_;
};

}  // namespace lode
