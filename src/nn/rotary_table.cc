#include "nn/rotary_table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>

#include "core/rehearsal.h"

namespace lode {
namespace {

double llama3_frequency(const RotarySpec& spec, double plain) {
  const double wavelength = 2 * std::numbers::pi / plain;
  const auto original = static_cast<double>(spec.original_max_positions);
  if (wavelength < original / spec.high_freq_factor) return plain;
  if (wavelength > original / spec.low_freq_factor) return plain / spec.factor;
  const double smooth =
      (original / wavelength - spec.low_freq_factor) / (spec.high_freq_factor - spec.low_freq_factor);
  return (1 - smooth) * plain / spec.factor + smooth * plain;
}

// Peng et al. 2023 (arXiv 2309.00071): channels that turn often keep their frequency, the others are
// interpolated.
double yarn_frequency(const RotarySpec& spec, std::int64_t j, double plain) {
  const auto dim = static_cast<double>(spec.rotary_dim);
  // The channel pair that turns n times over the original context.
  const auto channel_of = [&](double n) {
    return dim * std::log(static_cast<double>(spec.original_max_positions) / (n * 2 * std::numbers::pi)) /
           (2 * std::log(spec.theta));
  };
  double low = channel_of(spec.beta_fast), high = channel_of(spec.beta_slow);
  if (spec.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  const double ramp = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
  return plain * (1 - ramp) + plain / spec.factor * ramp;
}

double dynamic_theta(const RotarySpec& spec, std::int64_t length) {
  const auto limit = static_cast<double>(spec.original_max_positions);
  const auto dim = static_cast<double>(spec.rotary_dim);
  const double reached = std::max(static_cast<double>(length), limit);
  return spec.theta * std::pow(spec.factor * reached / limit - (spec.factor - 1), dim / (dim - 2));
}

void allocate(Memory& memory, const RotarySpec& spec, std::int64_t rows, RotaryTable& table) {
  table.rotary_dim = spec.rotary_dim;
  table.cos = table.sin = Tensor();  // the smaller ones go first
  table.cos = Tensor(memory, MemoryTag::program, DType::f32, rows, spec.rotary_dim / 2);
  table.sin = Tensor(memory, MemoryTag::program, DType::f32, rows, spec.rotary_dim / 2);
}

// Rows [begin, begin + count) become positions [first, first + count) of a sequence of `length` tokens.
void fill_rows(const RotarySpec& spec, std::int64_t length, std::int64_t begin, std::int64_t first,
               std::int64_t count, RotaryTable& table) {
  if (Rehearsal::active()) return;
  const View cos = table.cos.view(), sin = table.sin.view();
  for (std::int64_t j = 0; j < spec.rotary_dim / 2; ++j) {
    const double frequency = rotary_frequency(spec, j, length);
    for (std::int64_t i = 0; i < count; ++i) {
      const double angle = static_cast<double>(first + i) * frequency;
      cos.row<float>(begin + i)[j] = static_cast<float>(spec.attention_factor * std::cos(angle));
      sin.row<float>(begin + i)[j] = static_cast<float>(spec.attention_factor * std::sin(angle));
    }
  }
}

}  // namespace

double rotary_frequency(const RotarySpec& spec, std::int64_t j, std::int64_t length) {
  const double exponent = -2.0 * static_cast<double>(j) / static_cast<double>(spec.rotary_dim);
  const double plain = std::pow(spec.theta, exponent);
  switch (spec.scaling) {
    case RotarySpec::Scaling::none:
      return plain;
    case RotarySpec::Scaling::linear:
      return plain / spec.factor;
    case RotarySpec::Scaling::dynamic:
      return std::pow(dynamic_theta(spec, length), exponent);
    case RotarySpec::Scaling::yarn:
      return yarn_frequency(spec, j, plain);
    case RotarySpec::Scaling::longrope: {
      const bool is_long = length > spec.original_max_positions;
      return plain / (is_long ? spec.long_factors : spec.short_factors)[static_cast<std::size_t>(j)];
    }
    case RotarySpec::Scaling::llama3:
      return llama3_frequency(spec, plain);
  }
  return plain;
}

void extend_rotary_table(Memory& memory, const RotarySpec& spec, std::int64_t positions, RotaryTable& table) {
  LODE_ASSERT(!spec.by_length());
  if (table.cos.defined() && table.cos.rows() >= positions) return;
  const auto rows = static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(positions, 256))));
  allocate(memory, spec, rows, table);
  fill_rows(spec, 0, 0, 0, rows, table);
}

void prepare_rotary_table(Memory& memory, const RotarySpec& spec, const Segments& segments,
                          RotaryTable& table) {
  const auto positions = segments.positions();
  if (positions.empty()) return;
  if (!spec.by_length()) {
    return extend_rotary_table(memory, spec, *std::ranges::max_element(positions) + 1, table);
  }
  // A row a token: lengths differ, and with them the frequencies.
  if (!table.cos.defined() || table.cos.rows() < segments.num_tokens()) {
    allocate(memory, spec, segments.num_tokens(), table);
  }
  table.rows.resize(positions.size());
  table.generation = segments.generation();
  std::iota(table.rows.begin(), table.rows.end(), 0);
  for (const Segment& segment : segments.list()) {
    const std::int64_t first = positions[static_cast<std::size_t>(segment.begin)];
    if (!segment.padding) {
      fill_rows(spec, first + segment.length, segment.begin, first, segment.length, table);
      continue;
    }
    for (std::int64_t i = 0; i < segment.length; ++i)  // padding is at position 0
      fill_rows(spec, 1, segment.begin + i, 0, 1, table);
  }
}

}  // namespace lode
