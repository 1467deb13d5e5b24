// Token and learned-position embeddings: y[t] = scale * table[token[t]] (+ positions[position[t]]). Backward
// adds to the tables' sinks in the order of t.
#pragma once

#include "autograd/tape.h"
#include "autograd/weight.h"
#include "ops/batch.h"

namespace lode {

// Throws Error(data) naming a token id outside the table. The batch must live until backward has run.
// positions: nullptr for models without learned positions.
Value embedding(Context& context, const Batch& batch, Weight& table, Weight* positions, float scale = 1);

}  // namespace lode
