// Reading and writing the weights of an optimizer's pass in each of their forms, per target as simd.h.
#include "kernels/cpu/philox_simd.h"

#if defined(LODE_KERNELS_CPU_WEIGHT_SIMD_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LODE_KERNELS_CPU_WEIGHT_SIMD_H
#undef LODE_KERNELS_CPU_WEIGHT_SIMD_H
#else
#define LODE_KERNELS_CPU_WEIGHT_SIMD_H
#endif

#include "kernels/cpu/ranges.h"
#include "kernels/optimizer.h"

HWY_BEFORE_NAMESPACE();
namespace lode {
namespace HWY_NAMESPACE {

inline constexpr std::int64_t kPerCounter = 8;  // 16-bit numbers of a Philox block
inline constexpr std::int64_t kRandomRun = 512;

// Random 16-bit numbers of elements [first, first + count), count <= kRandomRun; returns where they begin in
// `out`.
HWY_INLINE const std::uint16_t* random_run(PhiloxKey key, std::int64_t first, std::int64_t count,
                                           std::uint32_t* out) {
  const Words words;
  const std::int64_t begin = first / kPerCounter, end = ceil_div(first + count, kPerCounter);
  std::uint32_t* to = out;
  for (std::int64_t block = begin; block < end; block += kLanes, to += 4 * kLanes) {
    // One word is enough: no matrix has 2^35 elements.
    const U counter = hn::Add(hn::Iota(words, 0), hn::Set(words, static_cast<std::uint32_t>(block)));
    const PhiloxWords w = philox_vector({counter, hn::Zero(words), hn::Zero(words), hn::Zero(words)}, key);
    hn::StoreInterleaved4(w.w0, w.w1, w.w2, w.w3, words, to);
  }
  return reinterpret_cast<const std::uint16_t*>(out) + (first - begin * kPerCounter);
}

HWY_INLINE U load_halves(const std::uint16_t* p, Whole) {
  return hn::PromoteTo(Words(), hn::LoadU(Halves(), p));
}
HWY_INLINE U load_halves(const std::uint16_t* p, Part part) {
  std::uint16_t buffer[kLanes] = {};
  std::memcpy(buffer, p, static_cast<std::size_t>(part.n) * sizeof(buffer[0]));
  return load_halves(buffer, Whole());
}

// v rounded to bf16: up in magnitude when the half that goes plus `random` overflows. NaN and infinity stay.
HWY_INLINE V round_at_random(V v, U random) {
  const Words words;
  const U bits = hn::BitCast(words, v);
  const U exponent = hn::Set(words, 0x7f800000u);
  const auto finite = hn::Ne(hn::And(bits, exponent), exponent);
  const U sum = hn::Add(bits, hn::IfThenElseZero(finite, random));
  return hn::BitCast(Floats(), hn::And(sum, hn::Set(words, 0xffff0000u)));
}

// weight <- update(i, part, weight) over a block; i counts from the block's first element.
template <class Update>
HWY_INLINE void for_weights(const UpdatedWeights& a, const Blocks::Block& at, Update update) {
  if (a.values.dtype == DType::f32) {
    float* values = a.values.row<float>(at.row) + at.begin;
    if (a.copy.data == nullptr) {
      for_vectors(at.n, [&](std::int64_t i, auto part) LODE_LAMBDA {
        store(update(i, part, load(values + i, part)), values + i, part);
      });
      return;
    }
    bf16* copy = a.copy.row<bf16>(at.row) + at.begin;
    for_vectors(at.n, [&](std::int64_t i, auto part) LODE_LAMBDA {
      const V w = update(i, part, load(values + i, part));
      store(w, values + i, part);
      store(w, copy + i, part);
    });
    return;
  }
  bf16* values = a.values.row<bf16>(at.row) + at.begin;
  if (a.compensation.data != nullptr) {
    bf16* rest = a.compensation.row<bf16>(at.row) + at.begin;
    for_vectors(at.n, [&](std::int64_t i, auto part) LODE_LAMBDA {
      const V w = update(i, part, hn::Add(load(values + i, part), load(rest + i, part)));
      const V rounded = round_as<bf16>(w);
      store(rounded, values + i, part);
      store(hn::Sub(w, rounded), rest + i, part);
    });
    return;
  }
  const std::int64_t first = at.row * a.values.cols + at.begin;
  alignas(64) std::uint32_t buffer[(kRandomRun / kPerCounter + 2 * kLanes) * 4];
  for (std::int64_t from = 0; from < at.n; from += kRandomRun) {
    const std::int64_t count = std::min(kRandomRun, at.n - from);
    const std::uint16_t* random = random_run(a.key, first + from, count, buffer);
    for_vectors(count, [&](std::int64_t i, auto part) LODE_LAMBDA {
      const V w = update(from + i, part, load(values + from + i, part));
      store(round_at_random(w, load_halves(random + i, part)), values + from + i, part);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lode
HWY_AFTER_NAMESPACE();

#endif
