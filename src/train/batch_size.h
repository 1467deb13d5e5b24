// per_device_train_batch_size: auto.
#pragma once

#include <optional>

#include "core/facts.h"
#include "train/memory_plan.h"

namespace lode {

// How the run that is resumed cut its steps.
struct EarlierBatch {
  std::int64_t rows_per_step = 0, rows = 0;
};

// Where the recipe's micro-batch is auto: sets it and gradient_accumulation_steps, and returns the fact
// "micro-batch"; else nothing. Steps are rehearsed (plan_memory) with the largest rows; `data` may be empty
// as there. Taken is the largest micro-batch with which the run fits `limit` bytes (0: any does):
// - of the divisors of the global batch: global_batch_size, or that of the earlier run, whose own cut is
// taken
//   again if it fits, so that the resumed run stays the same to the bit;
// - without either of any size up to 65,536 tokens, beyond which products are no faster, and to the data set;
//   the global batch is then gradient_accumulation_steps of them.
// When one row alone does not fit, one is taken: the plan of the run says what helps. Throws as plan_memory.
std::optional<Fact> choose_batch_size(FileSystem& files, Recipe& recipe, const ModelParts& parts,
                                      const std::string& model_path, const DataSets& data, std::size_t limit,
                                      const std::optional<EarlierBatch>& earlier = {});

}  // namespace lode
