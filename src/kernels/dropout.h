// Inverted dropout whose mask is a function of (key, sample, position, channel) alone: packing, micro-batches
// and threads do not change it. The same kernel is its own backward. Slot keyed by the dtype of x.
#pragma once

#include <cstdint>

#include "core/rng.h"
#include "kernels/kernel.h"
#include "kernels/segments.h"

namespace lode {

struct DropoutApply {
  ConstView x;               // [T, D]
  View y;                    // [T, D]; may be x
  float p;                   // probability of dropping, in [0, 1): y = x * keep / (1 - p)
  PhiloxKey key;             // of (seed, step, site)
  const Segments* segments;  // [T]
};

// Element (t, c) is kept when word c % 4 of philox({c / 4, position, sample low, sample high}, key) >= p *
// 2^32.
extern KernelSlot<void(const DropoutApply&)> dropout_apply;

}  // namespace lode
