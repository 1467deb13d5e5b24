// Row-wise softmax cross entropy over logits, for a chunk of tokens. Slot keyed by the dtype of the logits
// (f32, bf16).
#pragma once

#include <cstdint>
#include <limits>
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

// A row of a softmax whose columns come block by block: of those seen so far.
struct SoftmaxRow {
  float max = -std::numeric_limits<float>::infinity();
  double sum = 0;        // of exp(z - max)
  float label = 0;       // the label's logit
  bool correct = false;  // the label has the largest, the first of equals
};

// Columns [first, first + B) of the rows. Rows without target get exponentials of 0 and keep their state.
struct SoftmaxBlock {
  ConstView logits;  // [C, B] f32
  std::int64_t first;
  std::span<const std::int32_t> labels;  // [C]; negative = no target
  std::span<SoftmaxRow> rows;            // [C] in and out
  std::span<float> factors;              // [C] out: exp(max before - max now); 1 when it has not risen
  View
      exponentials;  // [C, B] out: exp(z - max now), f32 or bf16; may share the logits' memory as dlogits may
};

void softmax_block(KernelContext& context, const SoftmaxBlock& block);

}  // namespace lode
