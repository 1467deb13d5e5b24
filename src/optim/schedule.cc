#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lode {
namespace {

double decay_shape(Schedule::Decay decay, double x) {
  switch (decay) {
    case Schedule::Decay::linear:
      return 1 - x;
    case Schedule::Decay::cosine:
      return 0.5 * (1 + std::cos(std::numbers::pi * x));
    case Schedule::Decay::one_minus_sqrt:
      return 1 - std::sqrt(x);
  }
  return 1;
}

}  // namespace

double Schedule::multiplier(std::int64_t step) const {
  const auto i = static_cast<double>(step), warmup = static_cast<double>(warmup_steps);
  const auto total = static_cast<double>(total_steps);
  const double r = min_lr_ratio;
  const bool stable_decay = kind == ScheduleKind::warmup_stable_decay;
  if (step < warmup_steps) {
    const double rise = i / std::max(1.0, warmup);
    return stable_decay ? rise * (1 - r) + r : rise;
  }
  switch (kind) {
    case ScheduleKind::constant:
      return 1;
    case ScheduleKind::linear:
      return std::max(0.0, (total - i) / std::max(1.0, total - warmup));
    case ScheduleKind::cosine: {
      const double x = (i - warmup) / std::max(1.0, total - warmup);
      const double shape = std::max(0.0, 0.5 * (1 + std::cos(2 * std::numbers::pi * num_cycles * x)));
      return shape * (1 - r) + r;
    }
    case ScheduleKind::warmup_stable_decay: {
      const double decay_length = static_cast<double>(decay_steps >= 0 ? decay_steps : total_steps / 10);
      const double begin = total - decay_length;
      if (i < begin) return 1;
      if (i >= total || decay_length <= 0) return r;
      return decay_shape(decay, (i - begin) / decay_length) * (1 - r) + r;
    }
  }
  return 1;
}

}  // namespace lode
