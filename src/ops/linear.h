// y = x W^T + b. x [T, in], W [out, in], b [1, out], y [T, out].
// Backward: dX = dY W (a new gradient); dW += dY^T X, db += column sums of dY (added to their sinks). Two
// nodes, dX and dW.
#pragma once

#include "autograd/tape.h"
#include "autograd/weight.h"

namespace lode {

Value linear(Context& context, const Value& x, Weight& weight, Weight* bias = nullptr);

}  // namespace lode
