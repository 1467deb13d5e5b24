// Best-fit-decreasing bin packing (Ding et al., "Fewer truncations improve language modeling", 2024).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lode {

struct Bins {
  std::vector<std::int64_t> begins;  // bin b holds items[begins[b] .. begins[b + 1])
  std::vector<std::int64_t> items;   // indices into lengths
  std::int64_t size() const { return static_cast<std::int64_t>(begins.size()) - 1; }
};

// Longest first, each into the bin with the least space that still fits it (of equal ones the one that
// reached that space first), else a new bin. Equal lengths keep their order. Lengths lie in [1, capacity].
Bins pack_best_fit(std::span<const std::int32_t> lengths, std::int32_t capacity);

}  // namespace lode
