// Products of bf16 with one narrow side: LoRA's and other low-rank updates. They are bound by reading and
// writing the wide matrix once, which a general product is far from.
#pragma once

#include "kernels/matmul.h"

namespace lode {

// bf16 operands, a not transposed, at most 64 along the narrow side (the summed one or the columns of the
// result), no bias, and the processor has bf16 dot products.
bool narrow_fits(const MatMul& product);
// Bit-equal for any number of threads.
void narrow_matmul(KernelContext& context, const MatMul& product);

}  // namespace lode
