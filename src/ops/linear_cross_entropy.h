// The output projection fused with softmax cross entropy, in chunks of tokens: logits [T, V] never exist.
//   z = x W^T, loss_t = logsumexp(z_t) - z_t[label_t]; total = sum over t of weight_t * loss_t
// Sources: Liger (arXiv 2410.10989), Wijmans et al. 2024 (arXiv 2411.09009). The token weights are known, so
// the gradient is made in the forward, chunk by chunk: dX is kept until backward, dW is added to its sink at
// once.
#pragma once

#include <vector>

#include "autograd/tape.h"
#include "autograd/weight.h"
#include "ops/batch.h"

namespace lode {

struct TokenLosses {
  std::vector<float> loss;            // [T], 0 where there is no target
  std::vector<std::uint8_t> correct;  // [T], 1 where the largest logit is the label's
  double sum = 0;                     // of the losses, in token order
  std::int64_t num_targets = 0, num_correct = 0;
};

// An adapter of the head: logits += z b^T with z [T, rank], b [V, rank].
struct LowRankHead {
  Value z;
  Weight* b = nullptr;  // nullptr: none
};

// x [T, D], weight [V, D]. loss_scale multiplies every token weight in the gradient (1 / number of target
// tokens of the whole global batch). The gradient of x is recorded when x wants one, the weight's when it is
// not frozen. Tokens without a target cost no logits. chunk_tokens: tokens whose logits exist at a time; 0:
// as many as fit 60 MB, at least 128 when the weight is trained; and where neither the weight nor an adapter
// wants a gradient, no more than a block of the vocabulary at a time (frozen_head.h).
TokenLosses linear_cross_entropy(Context& context, Value x, Weight& weight, const Batch& batch,
                                 float loss_scale, std::int64_t chunk_tokens = 0,
                                 const LowRankHead& adapter = {});

}  // namespace lode
