// The dynamic maps of 8-bit moments. They are seven decades of equal steps, twice as many in each, so that
// with u = index + offset (0 signed, 1 unsigned) the exponent of u is the decade and its mantissa the place
// in it: both ways are arithmetic on a few constants per decade, looked up in a register.
#pragma once

#include <array>

namespace lode {

struct Map8bit {
  std::array<float, 256> by_code;  // the map itself
  // By the exponent of u: magnitude = slope * mantissa + base.
  alignas(64) std::array<float, 16> slope{}, base{};
  // Two binades, of exponent fields 2 k and 2 k + 1, hold the beginning of one group at most. By k -
  // kFirstPair (0 also for less): the group at their lower end, and the magnitude above which it is the next
  // one.
  static constexpr int kFirstPair = 51;
  alignas(64) std::array<float, 16> group_at{}, next_above{};
  // By group: u = floor(magnitude * cells + shift), within [low, high].
  alignas(64) std::array<float, 16> cells{}, shift{}, low{}, high{};
  bool is_signed;

  explicit Map8bit(bool is_signed);
};

const Map8bit& map_8bit(bool is_signed);

}  // namespace lode
