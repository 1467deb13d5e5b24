// Initial values. A normal value is a table look-up in the inverse distribution function, interpolated with
// plain multiplications and additions: the same bits on every machine, and fast enough to be no part of a
// start.
#include <array>
#include <cmath>

#include "core/parallel.h"
#include "core/rng.h"
#include "kernels/elementwise.h"
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
  // 1 sign bit, kTableBits index bits, the rest interpolates.
  float operator()(std::uint32_t bits) const {
    constexpr int kFractionBits = 31 - kTableBits;
    const std::uint32_t index = (bits & 0x7fffffffu) >> kFractionBits;
    const float fraction =
        static_cast<float>(bits & ((1u << kFractionBits) - 1)) * (1.0f / (1u << kFractionBits));
    const float low = quantile[index], step = quantile[index + 1] - low;
    const float scaled = fraction * step;
    const float value = low + scaled;
    return (bits >> 31) != 0 ? -value : value;
  }
};

void fill_normal(Context& context, View values, PhiloxKey key, float deviation) {
  static const NormalTable table;
  LODE_ASSERT(values.contiguous());
  float* const out = values.row<float>(0);
  const std::int64_t n = values.numel(), blocks = (n + 3) / 4;
  parallel_for(context.kernel.threads, blocks, 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const auto counter = static_cast<std::uint64_t>(block);
      const auto words =
          philox({static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0}, key);
      const std::int64_t count = std::min<std::int64_t>(4, n - block * 4);
      for (std::int64_t i = 0; i < count; ++i) {
        out[block * 4 + i] = table(words[static_cast<std::size_t>(i)]) * deviation;
      }
    }
  });
}

}  // namespace

void initialise(Context& context, const Parameter& parameter, std::uint64_t seed) {
  switch (parameter.init.kind) {
    case InitKind::zeros:
      fill(context.kernel, parameter.values(), 0.0f);
      break;
    case InitKind::ones:
      fill(context.kernel, parameter.values(), 1.0f);
      break;
    case InitKind::normal:
      fill_normal(context, parameter.values(), make_key(seed, format("init/{}", parameter.name)),
                  static_cast<float>(parameter.init.deviation));
      break;
  }
  parameter.storage->changed(false);
}

}  // namespace lode
