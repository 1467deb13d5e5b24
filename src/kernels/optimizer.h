// Passes of optimizers over one parameter: each reads gradient and state once and writes weights, state and
// the bf16 copy once. Matrices are f32 where nothing else is said; hyper-parameters come in f64, since 1 - b
// of a rounded b would be off by 1e-7. Everywhere g = grad_scale * grad (clipping).
#pragma once

#include <array>
#include <cstdint>

#include "core/rng.h"
#include "kernels/kernel.h"

namespace lode {

// Where a pass reads weights and how it stores the new ones. f32 values keep what is computed; `copy` is
// their bf16 copy, rounded to nearest. bf16 values are their own masters: with `compensation` (bf16) a weight
// is the sum of the two, so that what rounding takes away is not lost (Kahan; Zamirai et al. 2020, arXiv
// 2010.06192); without it they are rounded up or down at random, as often as makes the mean exact.
struct UpdatedWeights {
  View values, copy, compensation;
  PhiloxKey key{};  // of the random rounding, whose counter is the element

  UpdatedWeights(View all_values = {}, View bf16_copy = {}) : values(all_values), copy(bf16_copy) {}
};

// AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101), torch.optim.AdamW's order:
//   w <- w * (1 - lr * weight_decay); m <- b1 m + (1 - b1) g; v <- b2 v + (1 - b2) g^2
//   w <- w - (lr / (1 - b1^t)) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)
struct AdamWStep {
  UpdatedWeights weight;
  ConstView grad;
  View exp_avg, exp_avg_sq;
  double lr, beta1, beta2, eps, weight_decay;
  double bias_correction1, bias_correction2;  // 1 - b^t
  double grad_scale;
};
void adamw_step(KernelContext& context, const AdamWStep& step);

// The same with moments in 8 bits (Dettmers et al. 2021, arXiv 2110.02861): per block of 256 elements the
// largest magnitude in f32 and for each element the index of the nearest of 256 values of a dynamic map.
// Weights are updated with the moments before they are rounded. All views contiguous.
struct AdamW8bitStep {
  UpdatedWeights weight;
  ConstView grad;
  std::uint8_t *codes1, *codes2;  // one an element
  float *absmax1, *absmax2;       // one a block
  double lr, beta1, beta2, eps, weight_decay;
  double bias_correction1, bias_correction2;
  double grad_scale;
};
inline constexpr std::int64_t kBlock8bit = 256;
void adamw_8bit_step(KernelContext& context, const AdamW8bitStep& step);
// The dynamic maps, ascending: 127 is the signed map's code of 0, 0 the unsigned one's.
const std::array<float, 256>& signed_map_8bit();
const std::array<float, 256>& unsigned_map_8bit();
// codes[i] <- nearest of |x[i]| / absmax, one block of at most kBlock8bit elements; returns absmax.
float quantize_8bit(const float* x, std::int64_t n, bool is_signed, std::uint8_t* codes);

// torch.optim.SGD: g <- g + weight_decay w; buffer <- momentum * buffer + (1 - dampening) g, or g itself at
// the first step; w <- w - lr * (nesterov ? g + momentum * buffer : buffer). Without momentum_buffer: w - lr
// * g.
struct SgdStep {
  UpdatedWeights weight;
  ConstView grad;
  View momentum_buffer;  // or data == nullptr
  double lr, momentum, dampening, weight_decay;
  bool nesterov, first;
  double grad_scale;
};
void sgd_step(KernelContext& context, const SgdStep& step);

// Lion (Chen et al. 2023, arXiv 2302.06675): w <- w (1 - lr weight_decay) - lr sign(b1 m + (1 - b1) g), then
// m <- b2 m + (1 - b2) g. sign(0) = 0.
struct LionStep {
  UpdatedWeights weight;
  ConstView grad;
  View exp_avg;
  double lr, beta1, beta2, weight_decay;
  double grad_scale;
};
void lion_step(KernelContext& context, const LionStep& step);

// The same with its moment in 8 bits, as AdamW8bitStep's signed one.
struct Lion8bitStep {
  UpdatedWeights weight;
  ConstView grad;
  std::uint8_t* codes;
  float* absmax;
  double lr, beta1, beta2, weight_decay;
  double grad_scale;
};
void lion_8bit_step(KernelContext& context, const Lion8bitStep& step);

// m <- keep * m + add * g; output (if any) <- out_grad * g + out_momentum * m.
struct MomentumStep {
  ConstView grad;
  View momentum;
  View output;  // or data == nullptr
  double keep, add, out_grad = 0, out_momentum = 0;
  double grad_scale;
};
void momentum_step(KernelContext& context, const MomentumStep& step);

// m <- b1 m + (1 - b1) g; v <- b2 v + (1 - b2) g^2; direction <- m / (sqrt(v) + eps).
struct AdamDirection {
  ConstView grad;
  View exp_avg, exp_avg_sq, direction;
  double beta1, beta2, eps;
  double grad_scale;
};
void adam_direction(KernelContext& context, const AdamDirection& step);

// w <- (before * w - rate * row[r] * col[c] * update) * after. Without row or col: factor 1.
struct WeightUpdate {
  UpdatedWeights weight;
  ConstView update;
  const float* row = nullptr;
  const float* col = nullptr;
  double before = 1, rate = 1, after = 1;
};
void update_weights(KernelContext& context, const WeightUpdate& update);

// out <- x_factor * x + y_factor * y; x and out of one dtype (f32 or bf16), y f32. Without x: y_factor * y.
struct Combination {
  ConstView x, y;
  View out;
  double x_factor, y_factor;
};
void combine(KernelContext& context, const Combination& combination);

// out[r] <- sum over c of x[r, c]^2, and out[c] <- sum over r: over fixed blocks, in f32.
void row_squares(KernelContext& context, ConstView x, float* out);
void col_squares(KernelContext& context, ConstView x, float* out);
// Sum of (row[r] * col[c] * x[r, c])^2, rows in f32, their sum in f64.
double scaled_squares(KernelContext& context, ConstView x, const float* row, const float* col);

}  // namespace lode
