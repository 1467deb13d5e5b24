// Dynamic loss scaling for gradients in f16 (Micikevicius et al. 2018, arXiv 1710.03740), with the defaults
// of torch.cuda.amp.GradScaler: the loss is multiplied so that small gradients do not vanish; a step whose
// gradients overflow is left out and the scale falls; after `interval` good steps in a row it grows.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lode {

struct LossScale {
  static constexpr double kGrowth = 2, kBackoff = 0.5, kLeast = 1;

  double value = 65536;
  std::int64_t good_steps = 0;  // since the last change

  // After a step. Overflows at kLeast cannot be helped by scaling.
  void update(bool overflow, std::int64_t interval) {
    if (overflow) {
      value = std::max(kLeast, value * kBackoff);
      good_steps = 0;
    } else if (++good_steps >= interval) {
      // Beyond f32's range it would be infinite.
      if (value * kGrowth < 0x1p100) value *= kGrowth;
      good_steps = 0;
    }
  }
};

}  // namespace lode
