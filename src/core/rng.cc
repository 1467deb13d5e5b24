#include "core/rng.h"

#include <cmath>
#include <numbers>
#include <numeric>

#include "core/fail.h"

namespace lode {

std::uint64_t hash_name(std::string_view name) {
  std::uint64_t hash = 14695981039346656037ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash;
}

PhiloxKey make_key(std::uint64_t seed, std::string_view name) {
  const std::uint64_t hash = hash_name(name);
  const auto mixed = philox({static_cast<std::uint32_t>(hash), static_cast<std::uint32_t>(hash >> 32), 0, 0},
                            {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return {mixed[0], mixed[1]};
}

std::uint32_t Rng::next_u32() {
  if (left_ == 0) {
    buffer_ =
        philox({static_cast<std::uint32_t>(block_), static_cast<std::uint32_t>(block_ >> 32), 0, 0}, key_);
    ++block_;
    left_ = 4;
  }
  return buffer_[4 - left_--];
}

double Rng::next_uniform() {
  const std::uint64_t high = next_u32() >> 5, low = next_u32() >> 6;
  return static_cast<double>((high << 26) | low) * 0x1p-53;
}

std::uint64_t Rng::below(std::uint64_t bound) {
  LODE_ASSERT(bound > 0);
  const std::uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
  for (;;) {
    const std::uint64_t high = next_u32();
    const std::uint64_t value = (high << 32) | next_u32();
    if (value < limit) return value % bound;
  }
}

double Rng::next_normal() {
  const double radius = std::sqrt(-2 * std::log(1 - next_uniform()));
  return radius * std::cos(2 * std::numbers::pi * next_uniform());
}

std::vector<std::uint32_t> random_permutation(std::uint32_t n, std::uint64_t seed, std::string_view name) {
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  Rng rng(seed, name);
  for (std::uint32_t i = n; i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  return order;
}

}  // namespace lode
