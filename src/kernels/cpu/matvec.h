// Products with few rows (decoding): bound by reading the weights once.
#pragma once

#include "kernels/matmul.h"

namespace lode {

// At most 4 rows against transposed weights, whose rows are then read as they lie.
bool matvec_fits(const MatMul& product);
void matvec(KernelContext& context, const MatMul& product);

}  // namespace lode
