#include "models/vocabulary.h"

#include <cmath>

#include "core/rehearsal.h"
#include "core/rng.h"

namespace lode {
namespace {

constexpr double kVariance = 1e-9;  // of new rows, in those of the stored ones
constexpr std::int64_t kChunk = 256;

// Rows [first, first + count) as floats.
Tensor read(Context& context, const Parameter& parameter, std::int64_t first, std::int64_t count) {
  Tensor rows(context.memory, MemoryTag::workspace, DType::f32, count, parameter.cols);
  parameter.read_rows(context, first, rows.view());
  return rows;
}

// One after another, in double: the same for any number of threads.
std::vector<double> mean_row(Context& context, const Parameter& stored) {
  std::vector<double> mean(static_cast<std::size_t>(stored.cols));
  for (std::int64_t first = 0; first < stored.rows; first += kChunk) {
    if (Rehearsal::active() && first > 0) break;  // the others take the same memory
    const Tensor rows = read(context, stored, first, std::min(kChunk, stored.rows - first));
    for (std::int64_t r = 0; r < rows.rows(); ++r) {
      const float* row = rows.view().row<float>(r);
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += static_cast<double>(row[i]);
    }
  }
  for (double& value : mean) value /= static_cast<double>(stored.rows);
  return mean;
}

void fill(Context& context, const Parameter& whole, const Parameter& stored) {
  const std::vector<double> mean = mean_row(context, stored);
  Rng rng(0, "new rows/" + whole.name);
  Parameter fresh = whole;
  fresh.begin += stored.rows;
  fresh.rows -= stored.rows;
  const Tensor values(context.memory, MemoryTag::workspace, DType::f32, fresh.rows, fresh.cols);
  for (std::int64_t r = 0; r < fresh.rows; ++r) {
    if (Rehearsal::active() && r > 0) break;
    const auto drawn = static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(stored.rows)));
    const double factor = std::sqrt(kVariance) * rng.next_normal();
    const Tensor row = read(context, stored, drawn, 1);
    const float* from = row.view().row<float>(0);
    float* to = values.view().row<float>(r);
    for (std::size_t i = 0; i < mean.size(); ++i)
      to[i] = static_cast<float>(mean[i] + factor * (static_cast<double>(from[i]) - mean[i]));
  }
  fresh.write(context, values.view());
}

}  // namespace

std::int64_t padded_rows(std::int64_t tokens) {
  constexpr std::int64_t kMultiple = 64;
  return (tokens + kMultiple - 1) / kMultiple * kMultiple;
}

void grow_vocabulary(ModelConfig& config, std::int64_t rows) {
  LODE_ASSERT(rows > config.spec.vocab_size);
  if (config.stored_rows == 0) config.stored_rows = config.spec.vocab_size;
  config.spec.vocab_size = rows;
  config.json["vocab_size"] = rows;
  check_size(config.spec, config.file);
}

bool grows(const Parameter& parameter) {
  return parameter.role == ParameterRole::base &&
         (parameter.kind == ModuleKind::embedding || parameter.kind == ModuleKind::head);
}

Parameter stored_part(const ModelConfig& config, const Parameter& parameter) {
  Parameter part = parameter;
  if (config.stored_rows > 0 && grows(parameter)) part.rows = config.stored_rows;
  return part;
}

void fill_new_rows(Context& context, const ModelConfig& config, const Decoder& decoder) {
  if (config.stored_rows == 0) return;
  for (const Parameter& parameter : decoder.parameters().all()) {
    if (grows(parameter)) fill(context, parameter, stored_part(config, parameter));
  }
}

}  // namespace lode
