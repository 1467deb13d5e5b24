#include "kernels/cpu/optimizer_8bit_map.h"

#include <cmath>
#include <vector>

#include "core/fail.h"

namespace lode {

const Map8bit& map_8bit(bool is_signed) {
  static const Map8bit with_sign(true), without_sign(false);
  return is_signed ? with_sign : without_sign;
}

// Seven decades up to 1; decade i has the middles of 2^i (signed; both signs) or 2^(i + 1) equal steps
// between 0.1 and 1, times 10^(i - 6). 0 and 1 complete the 256.
Map8bit::Map8bit(bool with_sign) : is_signed(with_sign) {
  std::vector<float> magnitudes{0.0f};
  for (int i = 0; i < 7; ++i) {
    const int steps = 1 << (is_signed ? i : i + 1);
    const float step = (1.0f - 0.1f) / static_cast<float>(steps);
    const auto bound = [&](int k) {  // from the nearer end
      return 2 * k < steps + 1 ? 0.1f + step * static_cast<float>(k)
                               : 1.0f - step * static_cast<float>(steps - k);
    };
    const auto decade = static_cast<float>(std::pow(10.0, i - 6));
    for (int k = 0; k < steps; ++k) magnitudes.push_back(decade * ((bound(k) + bound(k + 1)) / 2.0f));
  }
  magnitudes.push_back(1.0f);
  const std::size_t count = magnitudes.size();  // 129 or 256
  by_code.fill(0.0f);
  for (std::size_t k = 0; k < count; ++k) {
    if (!is_signed) {
      by_code[k] = magnitudes[k];
    } else {
      by_code[127 + k] = magnitudes[k];
      if (k < 128) by_code[127 - k] = -magnitudes[k];
    }
  }
  by_code[is_signed ? 127 : 0] = 0.0f;
  // Groups: 0, the decades, 1; where 1 to 8 begin.
  std::array<float, 8> begin{};
  const int offset = is_signed ? 0 : 1;
  for (int group = 0; group < 9; ++group) {
    const int exponent = is_signed ? group - 1 : group;
    const auto at = static_cast<std::size_t>(group);
    const std::size_t first =
        group == 0 ? 0 : (std::size_t{1} << exponent) - static_cast<std::size_t>(offset);
    if (group > 0) begin[at - 1] = (magnitudes[first - 1] + magnitudes[first]) / 2.0f;
    low[at] = high[at] = shift[at] = static_cast<float>(first) + static_cast<float>(offset);
    if (group == 0) continue;
    const auto e = static_cast<std::size_t>(exponent);
    base[e] = 1.0f;
    if (group == 8) continue;
    const double size = std::pow(10.0, group - 7), steps = std::ldexp(1.0, exponent);
    slope[e] = static_cast<float>(0.9 * size);
    base[e] = static_cast<float>(size * (0.1 - 0.9 + 0.45 / steps));
    cells[at] = static_cast<float>(steps / (0.9 * size));
    shift[at] = static_cast<float>(steps * (1 - 0.1 / 0.9));
    high[at] = static_cast<float>(2 * steps - 1);
  }
  for (int pair = 0; pair < 16; ++pair) {
    const auto at = static_cast<std::size_t>(pair);
    const double from = pair == 0 ? 0.0 : std::ldexp(1.0, 2 * (pair + kFirstPair) - 127);
    const double to = std::ldexp(1.0, 2 * (pair + kFirstPair) - 125);
    next_above[at] = 2;  // above every magnitude
    for (const float first : begin) {
      if (first < from) group_at[at] += 1;
      if (first < from || first >= to) continue;
      LODE_ASSERT(next_above[at] == 2);
      next_above[at] = first;
    }
  }
}

}  // namespace lode
