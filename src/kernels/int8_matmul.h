// Products with int8 weights in int8 arithmetic: the rows of `a` are quantised as they come, the products are
// summed in exact integers, and the sums scaled back in f32. Bit-equal for any number of threads and on any
// processor.
#pragma once

#include <string>

#include "kernels/kernel.h"

namespace lode {

// A matrix whose row n holds the values scale[n] * q[n][k], q in -127 .. 127. q[n] begins at data + n *
// stride.
struct Int8Matrix {
  const std::int8_t* data = nullptr;
  std::int64_t rows = 0, cols = 0, stride = 0;
  const float* scale = nullptr;  // [rows]

  Int8Matrix slice_rows(std::int64_t begin, std::int64_t count) const {
    return {data + begin * stride, count, cols, stride, scale + begin};
  }
};

// c = a * op(b) (+ bias) (+ c when accumulate). transpose_b: op(b) = b^T, a [M, b.cols], c [M, b.rows] (a
// forward); else op(b) = b, a [M, b.rows], c [M, b.cols] (a gradient of the input), where the scales of b
// are multiplied into a before it is quantised.
// Each row of a is cut along the summed dimension into equal blocks of at most 64 values, each quantised
// by its own largest magnitude: a value is off by at most 1/254 of the largest of its block. a and c are f32
// or bf16, bias [1, N] f32 or data == nullptr. c must not overlap an input. A block of a with a value that
// is not finite makes its row of c NaN.
struct Int8MatMul {
  ConstView a;
  Int8Matrix b;
  bool transpose_b = false;
  ConstView bias;
  bool accumulate = false;
  View c;
};
void int8_matmul(KernelContext& context, const Int8MatMul& product);

// Whether this processor has 8-bit dot products, without which int8_matmul is a portable loop, slower than a
// product of floats; else what is missing.
struct Int8Path {
  bool native;
  std::string chosen, why;
};
Int8Path int8_matmul_path();

}  // namespace lode
