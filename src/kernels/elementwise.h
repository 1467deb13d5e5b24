// Passes over matrices. Sums run over fixed blocks in f64 partials, so they do not depend on threads.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/kernel.h"

namespace lode {

// y += x; same dtype (f32 or bf16; bf16 rounds once per addition). Keyed by y's dtype.
extern KernelSlot<void(ConstView x, View y)> add_inplace;
// y = a + b, same dtype. Keyed by it.
extern KernelSlot<void(ConstView a, ConstView b, View y)> add_rows;

// Any of f32, bf16, f16 to any of them, rounding to nearest even.
void convert(KernelContext& context, ConstView x, View y);
void fill(KernelContext& context, View y, float value);

// out[c] (+)= sum over rows of x[:, c]; out [1, D] f32. Keyed by x's dtype: the gradient of a bias.
extern KernelSlot<void(ConstView x, bool accumulate, View out)> sum_rows;

double sum_of_squares(KernelContext& context, ConstView x);  // f32 or bf16

// How values would fare in f16, x f32 or bf16: `overflows` become infinite or are not finite already,
// `vanishing` ones are not 0 and become 0.
struct F16Range {
  float largest = 0;  // magnitude
  std::int64_t overflows = 0, vanishing = 0;
};
F16Range range_for_f16(KernelContext& context, ConstView x);
// Index (row * cols + col) of the first value that is NaN or infinite, if any; f32 or bf16.
std::optional<std::int64_t> find_non_finite(KernelContext& context, ConstView x);

}  // namespace lode
