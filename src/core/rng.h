// Counter-based random numbers (Philox4x32-10, Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011): a value is a function of key and counter alone, so results do not depend on order, threads or
// layout.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace lode {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

inline std::array<std::uint32_t, 4> philox(PhiloxCounter c, PhiloxKey k) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * c[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(a)};
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return c;
}

// FNV-1a, 64 bit: turns names into keys.
std::uint64_t hash_name(std::string_view name);

// Key of a named stream under a seed.
PhiloxKey make_key(std::uint64_t seed, std::string_view name);

// A sequential stream over one key.
class Rng {
 public:
  Rng(std::uint64_t seed, std::string_view name) : key_(make_key(seed, name)) {}
  std::uint32_t next_u32();
  double next_uniform();                     // [0, 1), 53 bits
  std::uint64_t below(std::uint64_t bound);  // uniform in [0, bound), unbiased; bound > 0
  double next_normal();                      // mean 0, deviation 1 (Box-Muller)

 private:
  PhiloxKey key_;
  std::uint64_t block_ = 0;
  std::array<std::uint32_t, 4> buffer_{};
  int left_ = 0;
};

// A permutation of [0, n): Fisher-Yates over the stream (seed, name).
std::vector<std::uint32_t> random_permutation(std::uint32_t n, std::uint64_t seed, std::string_view name);

}  // namespace lode
