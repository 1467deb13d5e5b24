// Activations of MLPs, keyed by the dtype of the activations (f32, bf16); arithmetic in f32. All outputs are
// overwritten.
#pragma once

#include "kernels/kernel.h"

namespace lode {

// y = silu(gate) * up, silu(g) = g / (1 + exp(-g)); gate_up is [T, 2I], gate first (Shazeer 2020, arXiv
// 2002.05202). Backward: dgate = dy * up * s * (1 + g * (1 - s)) with s = sigmoid(g); dup = dy * silu(g).
extern KernelSlot<void(ConstView gate_up, View y)> swiglu_forward;
extern KernelSlot<void(ConstView dy, ConstView gate_up, View dgate_up)> swiglu_backward;

// erf:  y = x * Phi(x)
// tanh: y = x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))  (Hendrycks and Gimpel 2016, arXiv 1606.08415)
enum class GeluKind { erf, tanh };
extern KernelSlot<void(GeluKind kind, ConstView x, View y)> gelu_forward;
extern KernelSlot<void(GeluKind kind, ConstView dy, ConstView x, View dx)> gelu_backward;

}  // namespace lode
