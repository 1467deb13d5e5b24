// Activations of MLPs, keyed by the dtype of the activations (f32, bf16); arithmetic in f32. All outputs are
// overwritten; that of a backward pass may lie in place of an input of its shape.
#pragma once

#include "kernels/kernel.h"

namespace lode {

// erf:  y = x * Phi(x)
// tanh: y = x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))  (Hendrycks and Gimpel 2016, arXiv 1606.08415)
enum class GeluKind { erf, tanh };
extern KernelSlot<void(GeluKind kind, ConstView x, View y)> gelu_forward;
extern KernelSlot<void(GeluKind kind, ConstView dy, ConstView x, View dx)> gelu_backward;

// y = act(gate) * up; gate_up is [T, 2I], gate first (Shazeer 2020, arXiv 2002.05202). act is gelu as above
// or silu(g) = g * s with s = 1 / (1 + exp(-g)), whose slope is s * (1 + g * (1 - s)). Backward: dgate = dy *
// up * act'(gate), dup = dy * act(gate).
enum class GateKind { silu, gelu_erf, gelu_tanh };
extern KernelSlot<void(GateKind kind, ConstView gate_up, View y)> gated_forward;
extern KernelSlot<void(GateKind kind, ConstView dy, ConstView gate_up, View dgate_up)> gated_backward;

}  // namespace lode
