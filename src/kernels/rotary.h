// Rotary position embedding (Su et al. 2021, arXiv 2104.09864), half pairing: channels j and j + R/2 of a
// head rotate by position * frequency_j. Slot keyed by the dtype of x.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kernel.h"

namespace lode {

struct RotaryApply {
  View x;                                    // [T, heads * head_dim], rotated in place
  std::int64_t heads, head_dim, rotary_dim;  // the first rotary_dim channels of a head rotate
  ConstView cos, sin;                        // [positions, rotary_dim / 2] f32
  std::span<const std::int32_t> positions;   // [T]
  bool inverse;                              // rotate by the negative angle: the backward
};

extern KernelSlot<void(const RotaryApply&)> rotary_apply;

}  // namespace lode
