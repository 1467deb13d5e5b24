// Rotary positions on the query and key heads of a fused projection, in place (its producer needs its output
// no more). Backward: the inverse rotation of the gradient, in place unless it is shared.
#pragma once

#include "autograd/tape.h"
#include "kernels/rotary.h"
#include "ops/batch.h"

namespace lode {

// cos and sin of positions [0, rows): [rows, rotary_dim / 2] f32.
struct RotaryTable {
  std::int64_t rotary_dim = 0;
  Tensor cos, sin;
};

// x [T, >= heads * head_dim]: the first `heads` heads (queries, then keys) rotate, the rest stays.
// Consumes x: its data is changed. Batch and table must live until backward has run.
Value rotary(Context& context, Value x, const Batch& batch, const RotaryTable& table, std::int64_t heads,
             std::int64_t head_dim);

}  // namespace lode
