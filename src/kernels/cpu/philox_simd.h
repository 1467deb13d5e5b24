// Philox4x32-10 (core/rng.h) on a vector of counters, per target as simd.h.
#include "kernels/cpu/simd.h"

#if defined(LODE_KERNELS_CPU_PHILOX_SIMD_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LODE_KERNELS_CPU_PHILOX_SIMD_H
#undef LODE_KERNELS_CPU_PHILOX_SIMD_H
#else
#define LODE_KERNELS_CPU_PHILOX_SIMD_H
#endif

#include "core/rng.h"

HWY_BEFORE_NAMESPACE();
namespace lode {
namespace HWY_NAMESPACE {

struct Wide {
  U high, low;
};
// The 64-bit products of the lanes.
HWY_INLINE Wide multiply(U x, std::uint32_t factor) {
  const Words words;
#if HWY_TARGET == HWY_SCALAR
  const std::uint64_t product = std::uint64_t{hn::GetLane(x)} * factor;
  return {hn::Set(words, static_cast<std::uint32_t>(product >> 32)),
          hn::Set(words, static_cast<std::uint32_t>(product))};
#else
  const hn::RepartitionToWide<Words> longs;
  const U k = hn::Set(words, factor);
  const auto even = hn::MulEven(x, k);
  const auto odd = hn::MulEven(hn::BitCast(words, hn::ShiftRight<32>(hn::BitCast(longs, x))), k);
  return {hn::OddEven(hn::BitCast(words, odd), hn::BitCast(words, hn::ShiftRight<32>(even))),
          hn::OddEven(hn::BitCast(words, hn::ShiftLeft<32>(odd)), hn::BitCast(words, even))};
#endif
}

struct PhiloxWords {
  U w0, w1, w2, w3;
};
// core's philox on kLanes counters at once.
HWY_INLINE PhiloxWords philox_vector(PhiloxWords c, PhiloxKey key) {
  const Words words;
  for (int round = 0; round < 10; ++round) {
    const Wide a = multiply(c.w0, 0xD2511F53u), b = multiply(c.w2, 0xCD9E8D57u);
    c = {hn::Xor(hn::Xor(b.high, c.w1), hn::Set(words, key[0])), b.low,
         hn::Xor(hn::Xor(a.high, c.w3), hn::Set(words, key[1])), a.low};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return c;
}

}  // namespace HWY_NAMESPACE
}  // namespace lode
HWY_AFTER_NAMESPACE();

#endif
