// Checks of the keys of the batch.
#include "core/format.h"
#include "train/recipe_checks.h"

namespace lode {

void check_batch(Recipe& recipe, RecipeReading& reading) {
  constexpr auto kRows = "per_device_train_batch_size", kTimes = "gradient_accumulation_steps",
                 kGlobal = "global_batch_size";
  const auto where = [&](const char* key) {
    const auto found = reading.set.find(key);
    return found == reading.set.end() ? "default" : found->second;
  };
  const bool automatic = recipe.per_device_train_batch_size == Recipe::kAutoBatch;
  if (automatic && (recipe.memory_limit.empty() || recipe.memory_limit == "none")) {
    reading.problems.push_back(format(
        "{}: auto ({}) takes what fits memory_limit, which is none ({}): set memory_limit to auto or a size",
        kRows, where(kRows), where("memory_limit")));
  }
  if (!recipe.global_batch_size || reading.failed.contains(kRows)) return;
  if (reading.set.contains(kTimes)) {
    reading.problems.push_back(
        format("{} ({}) and {} ({}) both say how many micro-batches make a step; keep one", kTimes,
               where(kTimes), kGlobal, where(kGlobal)));
    return;
  }
  if (automatic) return;
  if (*recipe.global_batch_size % recipe.per_device_train_batch_size != 0) {
    reading.problems.push_back(format("{}: {} ({}) is no multiple of {}: {} ({})", kGlobal,
                                      *recipe.global_batch_size, where(kGlobal), kRows,
                                      recipe.per_device_train_batch_size, where(kRows)));
    return;
  }
  recipe.gradient_accumulation_steps = *recipe.global_batch_size / recipe.per_device_train_batch_size;
  reading.set.emplace(kTimes, where(kGlobal));  // what other checks say of it
}

}  // namespace lode
