// The activations of MLPs; formulas in kernels/activation.h. Backward makes a new gradient of the input.
#pragma once

#include "autograd/tape.h"
#include "kernels/activation.h"

namespace lode {

// gate_up [T, 2I], gate first -> [T, I]. policy: of the result, for the product that follows.
Value gated(Context& context, const Value& gate_up, GateKind kind, SavePolicy policy = SavePolicy::keep);
// [T, I] -> [T, I].
Value gelu(Context& context, const Value& x, GeluKind kind, SavePolicy policy = SavePolicy::keep);

}  // namespace lode
