// What a checkpoint remembers of a run beside weights and optimizer: lode_state.json.
#pragma once

#include <optional>
#include <string>

#include "core/json.h"
#include "optim/loss_scale.h"

namespace lode {

struct RunState {
  std::int64_t step = 0;     // data steps done
  std::int64_t updates = 0;  // optimizer steps applied: step - skipped ones
  std::int64_t tokens = 0, samples = 0, skipped = 0;
  double flops = 0;
  double epoch = 0;
  std::int64_t bad_in_row = 0;
  // Since the last logging step.
  double window_loss = 0;
  std::int64_t window_targets = 0;
  // Of the last applied step.
  std::optional<double> grad_norm, learning_rate;
  // Evaluation.
  std::optional<double> best_metric;
  std::int64_t best_step = 0;
  std::int64_t evaluations_without_improvement = 0;
  std::int64_t last_eval_step = -1;
  LossScale loss_scale;  // of fp16
  Json stream;           // where streamed data goes on after the step; null for prepared data
  // What must not change when a run goes on.
  std::int64_t rows_per_step = 0;
  std::uint64_t seed = 0, data_seed = 0;
  std::string data_fingerprint, tokenizer_fingerprint;
  std::string optimizer;
  bool bf16 = false, pure_bf16 = false, fp16 = false;
  Json recipe;

  Json to_json() const;
  // Throws Error(data) naming `file` on missing or wrong members.
  static RunState from_json(const Json& json, const std::string& file);
};

// Lists everything about `saved` that forbids going on as `now`; empty when nothing does.
std::vector<std::string> resume_problems(const RunState& saved, const RunState& now);

}  // namespace lode
