// Fused optimizer passes over one parameter: read gradient and state once, write weights, state and the bf16
// copy once.
#pragma once

#include "kernels/kernel.h"

namespace lode {

// AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101), torch.optim.AdamW's order:
//   w <- w * (1 - lr * weight_decay); m <- b1 m + (1 - b1) g; v <- b2 v + (1 - b2) g^2
//   w <- w - (lr / (1 - b1^t)) * m / (sqrt(v) / sqrt(1 - b2^t) + eps),     g = grad_scale * grad
struct AdamWStep {
  View weight;               // f32
  ConstView grad;            // f32
  View exp_avg, exp_avg_sq;  // f32
  View copy;                 // bf16 copy of the new weights, or data == nullptr
  // In f64: 1 - b1 of a rounded b1 would be off by 1e-7.
  double lr, beta1, beta2, eps, weight_decay;
  double bias_correction1, bias_correction2;  // 1 - b^t
  double grad_scale;                          // clipping
};
void adamw_step(KernelContext& context, const AdamWStep& step);

}  // namespace lode
