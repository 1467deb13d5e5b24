// Moments in 8 bits as a parameter's state, for the optimizers that keep them so.
#pragma once

#include <string>
#include <vector>

#include "kernels/optimizer.h"
#include "optim/optimizers.h"

namespace lode {

std::vector<std::string> moments_8bit_names();
std::vector<Tensor> make_moments_8bit(Context& context, std::int64_t numel);
// All of a step but weight, grad and copy.
AdamW8bitStep moments_8bit_step(const AdamWOptions& options, std::vector<Tensor>& state,
                                const StepArguments& arguments);

}  // namespace lode
