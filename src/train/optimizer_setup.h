// From a recipe to its optimizer.
#pragma once

#include <string>

#include "optim/optimizers.h"
#include "train/recipe.h"

namespace lode {

// The method in one word: "adamw_torch", "galore_adamw", "badam".
std::string optimizer_name(const Recipe& recipe);

// head_size: of the model's q_proj and k_proj. Throws Error(usage) for optim_args that the optimizer has not.
OptimizerOptions optimizer_options(const Recipe& recipe, std::int64_t head_size);

// With the recipe's rounding of weights and its place for the state.
std::unique_ptr<ParameterUpdater> make_updater(Context& context, const Recipe& recipe,
                                               ParameterList& parameters, const OptimizerOptions& options);

// Throws Error(usage) when a target names no module that is trained.
void check_optimizer_targets(const OptimizerOptions& options, const ParameterList& parameters);

// "Muon's matrices: 84; AdamW for 40 others": what a method of matrices leaves to AdamW; "" for other
// methods.
std::string describe_optimizer_coverage(const OptimizerOptions& options, const ParameterList& parameters);

}  // namespace lode
