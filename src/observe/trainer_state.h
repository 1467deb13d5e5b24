// Hugging Face's trainer_state.json, so that tools that read its checkpoints find what they expect.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"

namespace lode {

struct TrainerState {
  std::int64_t step = 0, max_steps = 0;
  double epoch = 0, num_train_epochs = 0;
  std::int64_t logging_steps = 0, eval_steps = 0, save_steps = 0;
  std::int64_t train_batch_size = 0;  // samples of a micro-batch
  std::int64_t tokens_seen = 0;
  double total_flops = 0;
  std::optional<double> best_metric;
  std::int64_t best_step = 0;
  std::string best_checkpoint;  // path; empty: none
  bool stopping = false;        // training ends after this step
  std::vector<Json> metrics;    // lines of metrics.jsonl up to `step`; time_* fields are not needed
  std::string main_eval_set;    // its results appear as eval_loss, those of set x as eval_x_loss
};

// The file's text: keys sorted, two spaces of indent, a final line break.
std::string make_trainer_state(const TrainerState& state);

}  // namespace lode
