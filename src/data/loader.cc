#include "data/loader.h"

#include <algorithm>
#include <limits>

#include "core/fail.h"
#include "core/rng.h"

namespace lode {
namespace {

// Text bytes of a batch's targets.
std::int64_t count_bytes(const Batch& batch, std::span<const std::int32_t> bytes_per_token) {
  if (bytes_per_token.empty()) return 0;
  std::int64_t total = 0;
  for (const std::int32_t label : batch.labels()) {
    if (label == kIgnoreLabel) continue;
    LODE_ASSERT(static_cast<std::size_t>(label) < bytes_per_token.size());
    total += bytes_per_token[static_cast<std::size_t>(label)];
  }
  return total;
}

}  // namespace

Batch make_batch(std::span<const std::int32_t> lengths, std::span<const std::int64_t> ids,
                 const std::function<void(std::size_t, std::int32_t*)>& copy,
                 const std::function<void(std::size_t, float*)>& copy_weights) {
  std::int64_t used = 0;
  for (const std::int32_t length : lengths) used += length;
  const std::int64_t total = (used + kTokenMultiple - 1) / kTokenMultiple * kTokenMultiple;
  if (total > std::numeric_limits<std::int32_t>::max()) {
    fail(ErrorKind::usage, "a micro-batch of {} tokens is too large; choose fewer rows for it", used);
  }
  const auto size = static_cast<std::size_t>(total);
  std::vector<std::int32_t> tokens(size, 0), labels(size, kIgnoreLabel);
  std::vector<float> weights(size, 0.0f), own;
  std::size_t at = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const auto length = static_cast<std::size_t>(lengths[i]);
    copy(i, tokens.data() + at);
    std::copy_n(tokens.begin() + static_cast<std::ptrdiff_t>(at + 1), length - 1,
                labels.begin() + static_cast<std::ptrdiff_t>(at));
    std::fill_n(weights.begin() + static_cast<std::ptrdiff_t>(at), length - 1, 1.0f);
    if (copy_weights) {
      own.resize(length);
      copy_weights(i, own.data());
      for (std::size_t t = 0; t + 1 < length; ++t) {
        weights[at + t] = own[t + 1];
        if (own[t + 1] == 0) labels[at + t] = kIgnoreLabel;
      }
    }
    at += length;
  }
  return Batch(std::move(tokens), std::move(labels), std::move(weights),
               Segments(lengths, ids, static_cast<std::int32_t>(total)));
}

Batch make_batch(const Rows& rows, std::span<const std::int64_t> row_numbers) {
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> ids, begins;
  for (const std::int64_t row : row_numbers) {
    for (const Sample& sample : rows.samples(row)) {
      lengths.push_back(sample.length);
      ids.push_back(sample.id);
      begins.push_back(sample.begin);
    }
  }
  const PreparedData& data = rows.data();
  std::function<void(std::size_t, float*)> copy_weights;
  if (data.has_weights()) {
    copy_weights = [&](std::size_t i, float* out) { data.copy_weights(begins[i], lengths[i], out); };
  }
  return make_batch(
      lengths, ids, [&](std::size_t i, std::int32_t* out) { data.copy(begins[i], lengths[i], out); },
      copy_weights);
}

void add_micro_batch(Step& step, Batch batch, std::span<const std::int32_t> bytes_per_token) {
  step.num_targets += batch.num_targets();
  step.num_target_bytes += count_bytes(batch, bytes_per_token);
  for (const Segment& segment : batch.segments().list()) {
    if (!segment.padding) step.sample_ids.push_back(segment.sample);
  }
  step.micro_batches.push_back(std::move(batch));
}

StepLoader::StepLoader(std::shared_ptr<const Rows> rows, LoaderOptions options)
    : rows_(std::move(rows)), options_(options) {
  LODE_ASSERT(options.rows_per_micro_batch > 0 && options.micro_batches_per_step > 0);
  if (rows_->size() > std::numeric_limits<std::uint32_t>::max()) {
    fail(ErrorKind::usage, "{} rows are more than one data set may have", rows_->size());
  }
  LODE_ASSERT(rows_->size() > 0);
}

std::int64_t StepLoader::num_steps_per_epoch() const {
  return (rows_->size() + rows_per_step() - 1) / rows_per_step();
}

std::shared_ptr<const std::vector<std::uint32_t>> StepLoader::order_of(std::int64_t epoch) const {
  std::lock_guard lock(mutex_);
  if (order_epoch_ != epoch) {
    order_ = std::make_shared<const std::vector<std::uint32_t>>(random_permutation(
        static_cast<std::uint32_t>(rows_->size()), options_.seed, format("order of epoch {}", epoch)));
    order_epoch_ = epoch;
  }
  return order_;
}

Step StepLoader::make_step(std::int64_t step) const {
  LODE_ASSERT(step >= 0);
  const std::int64_t steps = num_steps_per_epoch(), epoch = step / steps;
  const std::int64_t begin = step % steps * rows_per_step();
  const std::int64_t end = std::min(begin + rows_per_step(), rows_->size());
  std::vector<std::int64_t> numbers;
  const auto order = options_.shuffle ? order_of(epoch) : nullptr;
  for (std::int64_t i = begin; i < end; ++i)
    numbers.push_back(order ? (*order)[static_cast<std::size_t>(i)] : i);

  Step result;
  result.epoch = static_cast<double>(step + 1) / static_cast<double>(steps);
  std::span<const std::int64_t> rest(numbers);
  while (!rest.empty()) {
    const auto count = std::min(rest.size(), static_cast<std::size_t>(options_.rows_per_micro_batch));
    add_micro_batch(result, make_batch(*rows_, rest.first(count)), rows_->bytes_per_token());
    rest = rest.subspan(count);
  }
  return result;
}

EvalBatches::EvalBatches(std::shared_ptr<const Rows> rows, std::int64_t tokens_per_batch)
    : rows_(std::move(rows)) {
  LODE_ASSERT(tokens_per_batch > 0);
  std::int64_t tokens = 0;
  begins_.push_back(0);
  for (std::int64_t row = 0; row < rows_->size(); ++row) {
    const std::int64_t length = rows_->num_tokens(row);
    if (tokens > 0 && tokens + length > tokens_per_batch) {
      begins_.push_back(row);
      tokens = 0;
    }
    tokens += length;
  }
  if (rows_->size() > 0) begins_.push_back(rows_->size());
}

std::int64_t EvalBatches::largest() const {
  LODE_ASSERT(size() > 0);
  std::int64_t largest = 0, most = -1;
  for (std::int64_t i = 0; i < size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    std::int64_t tokens = 0;
    for (std::int64_t row = begins_[at]; row < begins_[at + 1]; ++row) tokens += rows_->num_tokens(row);
    if (tokens > most) largest = i, most = tokens;
  }
  return largest;
}

EvalBatch EvalBatches::make(std::int64_t i) const {
  LODE_ASSERT(i >= 0 && i < size());
  const auto at = static_cast<std::size_t>(i);
  std::vector<std::int64_t> numbers;
  for (std::int64_t row = begins_[at]; row < begins_[at + 1]; ++row) numbers.push_back(row);
  EvalBatch result{make_batch(*rows_, numbers)};
  result.num_target_bytes = count_bytes(result.batch, rows_->bytes_per_token());
  return result;
}

}  // namespace lode
