// Moments in 8 bits as a parameter's state, for the optimizers that keep them so.
#pragma once

#include <string>
#include <vector>

#include "kernels/optimizer.h"
#include "optim/optimizers.h"

namespace lode {

// Codes and magnitudes of one moment, 0; the codes are bytes, four to an i32 element.
std::vector<Tensor> make_moment_8bit(Context& context, std::int64_t numel, bool is_signed);
std::uint8_t* codes_of(Tensor& codes);

// Both of AdamW.
std::vector<std::string> moments_8bit_names();
std::vector<Tensor> make_moments_8bit(Context& context, std::int64_t numel);
// All of a step but weight and grad.
AdamW8bitStep moments_8bit_step(const AdamWOptions& options, std::vector<Tensor>& state,
                                const StepArguments& arguments);

}  // namespace lode
