// What the optimizers' files share.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "kernels/matmul.h"
#include "nn/parameter.h"

namespace lode {

// f32 tensors of these rows and cols, 0.
std::vector<Tensor> zeros(Context& context,
                          std::initializer_list<std::pair<std::int64_t, std::int64_t>> shapes);
// An f32 matrix of one step.
Tensor scratch(Context& context, std::int64_t rows, std::int64_t cols, DType dtype = DType::f32);

// The matrix of a linear module that the targets name.
bool is_target(const Parameter& parameter, const std::vector<std::string>& targets);

// matmul cut in the same panels whatever the number of threads, and so with the same bits.
void multiply(Context& context, const MatMul& product);
// The same in the run's precision: with bf16 activations and bf16 dot products, operands rounded to bf16.
void multiply_in_run_precision(Context& context, const MatMul& product);
// multiply() of a square product that is symmetric: half of it is computed, the rest mirrored.
void multiply_symmetric(Context& context, const MatMul& product);

}  // namespace lode
