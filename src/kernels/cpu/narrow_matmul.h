// Products of bf16 with one narrow side: LoRA's and other low-rank updates. They are bound by reading and
// writing the wide matrix once, which a general product is far from.
#pragma once

#include "kernels/matmul.h"

namespace lode {

// bf16 operands, at most 64 along the narrow side, no bias, and the processor has bf16 dot products. The
// narrow side is the summed one or the columns of the result; with a transposed the latter, into f32.
bool narrow_fits(const MatMul& product);
// Bit-equal for any number of threads.
void narrow_matmul(KernelContext& context, const MatMul& product);

}  // namespace lode
