// Rotary positions on the query and key heads of a fused projection, in place (its producer needs its output
// no more). Backward: the inverse rotation of the gradient, in place unless it is shared.
#pragma once

#include <vector>

#include "autograd/tape.h"
#include "kernels/rotary.h"
#include "ops/batch.h"

namespace lode {

// cos and sin: [rows, rotary_dim / 2] f32, a row for each position from 0 on; or, where angles depend on more
// than the position, for whatever `rows` says.
struct RotaryTable {
  std::int64_t rotary_dim = 0;
  Tensor cos, sin;
  std::vector<std::int32_t> rows;  // the row of each token of the batch; empty: its position
  std::uint64_t generation = 0;    // of the segments that `rows` were made for
};

// x [T, >= heads * head_dim]: the first `heads` heads (queries, then keys) rotate, the rest stays.
// Consumes x: its data is changed. Batch and table must live, unchanged, until backward has run: a table
// whose rows were made for other segments is an Error(internal), in backward too.
Value rotary(Context& context, Value x, const Batch& batch, const RotaryTable& table, std::int64_t heads,
             std::int64_t head_dim);

}  // namespace lode
