// Row normalisation with an optional residual addition in front. T rows of D channels; statistics in f32.
//   h = x + delta, rounded to the activations' dtype (h = x without delta)
//   RMSNorm:   y = h * rstd * weight,               rstd = 1 / sqrt(mean(h^2) + eps)
//   LayerNorm: y = (h - mean) * rstd * weight + bias, rstd = 1 / sqrt(var(h) + eps), biased variance
// The factor is offset + weight: families that keep weights centred on zero have offset 1. With groups G a
// row is G vectors of D / G channels, each normalised by itself with the one weight [1, D / G] (heads of
// queries). Sources: Zhang and Sennrich 2019 (arXiv 1910.07467); Ba et al. 2016 (arXiv 1607.06450). Slots are
// keyed by the dtype of the activations (f32, bf16); weight, bias, statistics and their gradients are f32.
#pragma once

#include "kernels/kernel.h"

namespace lode {

enum class NormKind { rms, layer };

struct NormForward {
  NormKind kind;
  float eps;
  ConstView x;              // [T, D]
  ConstView delta;          // [T, D] or data == nullptr
  ConstView weight;         // [1, D / groups] f32
  ConstView bias;           // [1, D / groups] f32 or data == nullptr
  View h;                   // [T, D]; written only with delta; may be x
  View y;                   // [T, D]; may be x
  View rstd;                // [1, T * groups] f32
  View mean;                // [1, T * groups] f32, LayerNorm only
  float offset = 0;         // of the weight
  std::int64_t groups = 1;  // of a row
};

// dx = dnorm/dh(dy) + dh (when given). Parameter gradients are ADDED to dweight and dbias when these are
// given.
struct NormBackward {
  NormKind kind;
  ConstView dy;      // [T, D]
  ConstView h;       // [T, D], what was normalised
  ConstView weight;  // [1, D / groups] f32
  ConstView rstd, mean;
  ConstView dh;  // [T, D] gradient reaching h by other ways, or data == nullptr
  View dx;       // [T, D]; may be dy or dh
  View dweight;  // [1, D / groups] f32 or data == nullptr
  View dbias;    // [1, D / groups] f32 or data == nullptr
  float offset = 0;
  std::int64_t groups = 1;
};

extern KernelSlot<void(const NormForward&)> norm_forward;
extern KernelSlot<void(const NormBackward&)> norm_backward;

}  // namespace lode
