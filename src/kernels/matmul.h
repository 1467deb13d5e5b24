// Matrix products on row-major, possibly strided operands. Bit-equal from run to run for a fixed number of
// threads.
#pragma once

#include <string>

#include "kernels/kernel.h"

namespace lode {

// c = op(a) * op(b) (+ bias) (+ c when accumulate), accumulation in f32.
// a [M, K] ([K, M] when transpose_a), b [K, N] ([N, K] when transpose_b), c [M, N]; a and b of one dtype (f32
// or bf16), c f32 or bf16; bias [1, N] f32 or data == nullptr. c must not overlap an input. Without any K the
// product counts as 0.
struct MatMul {
  ConstView a, b;
  bool transpose_a = false, transpose_b = false;
  ConstView bias;
  bool accumulate = false;
  View c;
};

// Calls at the same time need a KernelContext with a workspace of its own each. Inside a parallel region one
// thread is used, whatever context.threads says.
void matmul(KernelContext& context, const MatMul& product);

// How products of bf16 are computed here: "bf16 dot products", or "widened to f32" with the reason.
struct MatMulPath {
  bool native_bf16;
  std::string chosen, why;
};
MatMulPath bf16_matmul_path();
std::string matmul_library_version();  // "oneDNN 2.6.3"

// Best GFLOP/s of square products (2048, and 4096 when thorough) of a dtype: the peak that utilisation is
// measured against.
double measure_matmul_peak(KernelContext& context, Memory& memory, DType dtype, bool thorough);

}  // namespace lode
