// Initial values. A normal value is a table look-up in the inverse distribution function, interpolated with
// plain multiplications and additions: the same bits on every machine, and fast enough to be no part of a
// start.
#include "nn/init.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/rng.h"
#include "kernels/elementwise.h"
#include "kernels/random.h"
#include "nn/parameter.h"

namespace lode {
namespace {

constexpr int kTableBits = 12;
constexpr int kTableSize = 1 << kTableBits;

// Inverse of the normal distribution function by Newton's iteration on erfc, for p <= 1/2.
double lower_quantile(double p) {
  double x = -std::sqrt(-2 * std::log(p)) * 0.9;
  for (int i = 0; i < 60; ++i) {
    const double value = 0.5 * std::erfc(-x / std::sqrt(2.0));
    const double slope = std::exp(-0.5 * x * x) / std::sqrt(2 * 3.14159265358979323846);
    const double step = (value - p) / slope;
    x -= std::clamp(step, -0.5, 0.5);
    if (std::abs(step) < 1e-15) break;
  }
  return x;
}

struct NormalTable {
  // quantile[i] at probability (i + 1/2) / (2 * (kTableSize + 1)), the lower half; the upper half mirrors it.
  std::array<float, kTableSize + 1> quantile;
  NormalTable() {
    // Rescaled so that interpolated values have deviation 1.
    double squares = 0;
    std::array<double, kTableSize + 1> exact;
    for (int i = 0; i <= kTableSize; ++i) exact[i] = lower_quantile((i + 0.5) / (2.0 * (kTableSize + 1)));
    exact[kTableSize] = 0;
    for (int i = 0; i < kTableSize; ++i) {
      const double a = exact[i], b = exact[i + 1];
      squares += (a * a + a * b + b * b) / 3;
    }
    const double scale = 1 / std::sqrt(squares / kTableSize);
    for (int i = 0; i <= kTableSize; ++i) quantile[i] = static_cast<float>(exact[i] * scale);
  }
};

void fill_initial(Context& context, const Parameter& parameter, std::uint64_t seed, View values) {
  const PhiloxKey key = make_key(seed, format("init/{}", parameter.name));
  const auto size = static_cast<float>(parameter.init.deviation);
  static constexpr float kStraight[] = {0.0f, 0.5f, 1.0f};
  switch (parameter.init.kind) {
    case InitKind::zeros:
      return fill(context.kernel, values, 0.0f);
    case InitKind::ones:
      return fill(context.kernel, values, 1.0f);
    case InitKind::normal:
      return fill_normal(context, values, key, size);
    case InitKind::uniform:
      return fill_from_table(context.kernel, key, kStraight, size, values);
  }
}

}  // namespace

void fill_normal(Context& context, View values, PhiloxKey key, float deviation) {
  static const NormalTable table;
  fill_from_table(context.kernel, key, table.quantile, deviation, values);
}

void initialise(Context& context, const Parameter& parameter, std::uint64_t seed) {
  if (!parameter.quantized() && parameter.values().dtype == DType::f32) {
    fill_initial(context, parameter, seed, parameter.values());
  } else {
    Tensor values(context.memory, MemoryTag::workspace, DType::f32, parameter.rows, parameter.cols);
    fill_initial(context, parameter, seed, values.view());
    parameter.write(context, values.view());
  }
  parameter.storage->changed(false);
}

}  // namespace lode
