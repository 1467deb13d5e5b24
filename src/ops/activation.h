// The activations of MLPs; formulas in kernels/activation.h. Backward makes a new gradient of the input.
#pragma once

#include "autograd/tape.h"
#include "kernels/activation.h"

namespace lode {

// gate_up [T, 2I], gate first -> [T, I].
Value gated(Context& context, const Value& gate_up, GateKind kind);
// [T, I] -> [T, I].
Value gelu(Context& context, const Value& x, GeluKind kind);

}  // namespace lode
