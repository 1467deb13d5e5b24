// Random values of a counter-based stream.
#pragma once

#include <span>

#include "core/rng.h"
#include "kernels/kernel.h"

namespace lode {

// Values of a distribution that is symmetric about 0, by its inverse. Element i of y (f32, contiguous) comes
// from word i % 4 of philox(i / 4, key): its upper bit is the sign, the next bits an index k into `table`,
// the rest f in [0, 1) interpolates:
//   y = +-(table[k] + f * (table[k + 1] - table[k])) * scale
// table has 2^b + 1 entries. Plain multiplications and additions: the same bits on every machine.
void fill_from_table(KernelContext& context, PhiloxKey key, std::span<const float> table, float scale,
                     View y);

}  // namespace lode
