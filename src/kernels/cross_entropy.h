// Row-wise softmax cross entropy over logits, for a chunk of tokens. Slot keyed by the dtype of the logits
// (f32, bf16).
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kernel.h"

namespace lode {

struct CrossEntropyRows {
  ConstView logits;                      // [C, V]
  std::span<const std::int32_t> labels;  // [C]; negative = no target
  std::span<const float> weight;         // [C]; d(total)/d(loss of the row), 0 where there is no target
  std::span<float> loss;                 // [C] out: logsumexp(z) - z[label], 0 without target
  std::span<std::uint8_t>
      correct;   // [C] out: 1 when the label has the largest logit (first on ties); may be empty
  View dlogits;  // [C, V] out: weight * (softmax - onehot), the label's entry formed in f32 before rounding;
                 // data == nullptr: no gradient. May be the logits' memory when it has their dtype and
                 // stride; bf16 dlogits for f32 logits may also share their memory, row by row (stride 2 *
                 // the logits' stride).
};

extern KernelSlot<void(const CrossEntropyRows&)> cross_entropy_rows;

}  // namespace lode
