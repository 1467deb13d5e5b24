// Numbers that tools/model_fixtures/fill_rule.py makes too, so that golden values need no weight files.
#pragma once

#include <cstdint>
#include <string_view>

#include "nn/parameter.h"

namespace lode::test {

constexpr std::uint32_t fnv1a(std::string_view name) {
  std::uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

// Element `index` of the stream `name`, in [-1, 1).
constexpr double fill_uniform(std::string_view name, std::int64_t index) {
  std::uint32_t z = fnv1a(name) + static_cast<std::uint32_t>(index) * 0x9E3779B9u;
  z ^= z >> 16;
  z *= 0x85EBCA6Bu;
  z ^= z >> 13;
  z *= 0xC2B2AE35u;
  z ^= z >> 16;
  return static_cast<double>(z >> 8) / 0x1p23 - 1;
}

// Where element (r, c) of a parameter is in the stored tensor, row-major.
inline std::int64_t stored_index(const Parameter& p, std::int64_t r, std::int64_t c) {
  return p.layout == FileLayout::transposed && !p.vector ? c * p.rows + r : r * p.cols + c;
}

inline float fill_value(const Parameter& p, std::int64_t index) {
  const double base = p.vector && p.name.ends_with(".weight") ? 1 : 0;
  return static_cast<float>(base + 0.25 * fill_uniform(p.name, index));
}

inline void fill_by_rule(const ParameterList& parameters) {
  for (const Parameter& p : parameters.all()) {
    for (std::int64_t r = 0; r < p.rows; ++r) {
      for (std::int64_t c = 0; c < p.cols; ++c)
        p.values().row<float>(r)[c] = fill_value(p, stored_index(p, r, c));
    }
    p.storage->changed(false);
  }
}

}  // namespace lode::test
