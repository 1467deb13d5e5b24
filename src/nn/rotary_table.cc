#include "nn/rotary_table.h"

#include <bit>
#include <cmath>
#include <numbers>

namespace lode {

double rotary_frequency(const RotarySpec& spec, std::int64_t j) {
  const double plain =
      std::pow(spec.theta, -2.0 * static_cast<double>(j) / static_cast<double>(spec.rotary_dim));
  if (spec.scaling == RotarySpec::Scaling::none) return plain;
  if (spec.scaling == RotarySpec::Scaling::linear) return plain / spec.factor;
  const double wavelength = 2 * std::numbers::pi / plain;
  const auto original = static_cast<double>(spec.original_max_positions);
  if (wavelength < original / spec.high_freq_factor) return plain;
  if (wavelength > original / spec.low_freq_factor) return plain / spec.factor;
  const double smooth =
      (original / wavelength - spec.low_freq_factor) / (spec.high_freq_factor - spec.low_freq_factor);
  return (1 - smooth) * plain / spec.factor + smooth * plain;
}

void extend_rotary_table(Memory& memory, const RotarySpec& spec, std::int64_t positions, RotaryTable& table) {
  if (table.cos.defined() && table.cos.rows() >= positions) return;
  const auto rows = static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(positions, 256))));
  const std::int64_t pairs = spec.rotary_dim / 2;
  table.rotary_dim = spec.rotary_dim;
  table.cos = Tensor(memory, MemoryTag::program, DType::f32, rows, pairs);
  table.sin = Tensor(memory, MemoryTag::program, DType::f32, rows, pairs);
  const View cos = table.cos.view(), sin = table.sin.view();
  for (std::int64_t j = 0; j < pairs; ++j) {
    const double frequency = rotary_frequency(spec, j);
    for (std::int64_t position = 0; position < rows; ++position) {
      const double angle = static_cast<double>(position) * frequency;
      cos.row<float>(position)[j] = static_cast<float>(std::cos(angle));
      sin.row<float>(position)[j] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace lode
