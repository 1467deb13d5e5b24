// The head whose weights get no gradient, as they are frozen or nothing is trained: the loss and the gradient
// of the hidden states need no logits beside each other. Blocks of the vocabulary pass by, as keys do in
// flash attention (Dao 2022, arXiv 2205.14135; the running softmax is Milakov and Gimelshein's, arXiv
// 1805.02867).
//   U_t = sum over v of exp(z_tv - max_t) W_v,  dx_t = weight_t * (U_t / sum_t - W_label)
#pragma once

#include <span>

#include "autograd/weight.h"
#include "ops/weight_product.h"

namespace lode {

struct FrozenHead {
  const WeightProduct& product;
  Weight& weight;                        // [V, D]
  Tensor x, dx;                          // [T, D]; dx is written, undefined: not wanted
  std::span<const std::int32_t> labels;  // [T]; negative: no target
  std::span<const float> weights;        // [T]: d(total)/d(loss of the token)
  std::span<float> loss;                 // [T] out, 0 without target
  std::span<std::uint8_t> correct;       // [T] out
};

// Scratch: 1,024 tokens x (2,048 + D) f32 (2,048 without dx), whatever the vocabulary.
void run_frozen_head(Context& context, const FrozenHead& head);

}  // namespace lode
