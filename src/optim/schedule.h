// Learning-rate schedules: Hugging Face's formulas. f(i) is the multiplier for 0-based step i, used by
// optimizer step i + 1.
#pragma once

#include <cstdint>
#include <string>

namespace lode {

enum class ScheduleKind { linear, cosine, constant, warmup_stable_decay };

struct Schedule {
  ScheduleKind kind = ScheduleKind::linear;
  std::int64_t warmup_steps = 0;  // W: i / max(1, W) for i < W
  std::int64_t total_steps = 0;   // T
  double num_cycles = 0.5;        // cosine
  double min_lr_ratio = 0;        // cosine and warmup_stable_decay: the least multiplier
  std::int64_t decay_steps = -1;  // warmup_stable_decay: D; the stable stretch is T - W - D. -1: a tenth of T
  enum class Decay { linear, cosine, one_minus_sqrt } decay = Decay::cosine;  // warmup_stable_decay

  double multiplier(std::int64_t step) const;
};

}  // namespace lode
