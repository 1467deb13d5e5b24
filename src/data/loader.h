// Whole optimizer steps from rows: any step can be made at any time, and again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "core/json.h"
#include "data/rows.h"
#include "ops/batch.h"

namespace lode {

struct LoaderOptions {
  std::uint64_t seed = 0;
  std::int64_t rows_per_micro_batch = 1;
  std::int64_t micro_batches_per_step = 1;
  bool shuffle = true;
};

struct Step {
  std::vector<Batch> micro_batches;
  std::int64_t num_targets = 0;          // over all micro-batches: the denominator of loss and gradient
  std::int64_t num_target_bytes = 0;     // text bytes of the targets, 0 when rows do not know them
  std::vector<std::int64_t> sample_ids;  // in stream order
  double epoch = 0;                      // epochs done once this step is done
  Json position;  // of a stream: where it goes on after this step; null for prepared data
};

// The rows of step s are a function of (seed, epoch, s) and the rows per step alone; the split into
// micro-batches only cuts them. The last step of an epoch may be smaller. Thread-safe.
class StepLoader {
 public:
  StepLoader(std::shared_ptr<const Rows> rows, LoaderOptions options);

  std::int64_t rows_per_step() const {
    return options_.rows_per_micro_batch * options_.micro_batches_per_step;
  }
  std::int64_t num_steps_per_epoch() const;
  const Rows& rows() const { return *rows_; }
  Step make_step(std::int64_t step) const;

 private:
  std::shared_ptr<const std::vector<std::uint32_t>> order_of(std::int64_t epoch) const;

  std::shared_ptr<const Rows> rows_;
  LoaderOptions options_;
  mutable std::mutex mutex_;
  mutable std::int64_t order_epoch_ = -1;
  mutable std::shared_ptr<const std::vector<std::uint32_t>> order_;
};

// One stream of samples, padded to a multiple of kTokenMultiple; copy(i, out) writes the tokens of sample i,
// copy_weights how much each counts as a target (without it all count 1; a token of weight 0 is no target).
Batch make_batch(std::span<const std::int32_t> lengths, std::span<const std::int64_t> ids,
                 const std::function<void(std::size_t, std::int32_t*)>& copy,
                 const std::function<void(std::size_t, float*)>& copy_weights = {});
// Appends to the step and counts; bytes_per_token as in RowOptions.
void add_micro_batch(Step& step, Batch batch, std::span<const std::int32_t> bytes_per_token);

// The samples of the given rows.
Batch make_batch(const Rows& rows, std::span<const std::int64_t> row_numbers);

struct EvalBatch {
  Batch batch;
  std::int64_t num_target_bytes = 0;
};

// All rows in order, as many to a batch as fit into tokens_per_batch (at least one). Batches are made when
// asked for.
class EvalBatches {
 public:
  EvalBatches(std::shared_ptr<const Rows> rows, std::int64_t tokens_per_batch);
  std::int64_t size() const { return static_cast<std::int64_t>(begins_.size()) - 1; }
  EvalBatch make(std::int64_t i) const;
  // The number of the one with most tokens; there must be one.
  std::int64_t largest() const;

 private:
  std::shared_ptr<const Rows> rows_;
  std::vector<std::int64_t> begins_;
};

}  // namespace lode
