// Basis of the SIMD kernels; the one header that includes Highway, for the sources of this folder alone. A
// kernel file says
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "kernels/cpu/<file>.cc"
//   #include "kernels/cpu/simd.h"
// and is then compiled once per target: the machine's baseline, AVX2 and AVX3. It has no `#pragma once` for
// that reason. Code inside `namespace lode::HWY_NAMESPACE` is width-agnostic. Arithmetic is in f32; load and
// store convert.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/tensor.h"
#include "kernels/cpu/features.h"

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif

#include "hwy/foreach_target.h"
// After foreach_target.h, which asks for it.
#include "hwy/highway.h"

#if defined(LODE_KERNELS_CPU_SIMD_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LODE_KERNELS_CPU_SIMD_H
#undef LODE_KERNELS_CPU_SIMD_H
#else
#define LODE_KERNELS_CPU_SIMD_H
#endif

// Lambdas do not inherit the target's attributes, and must vanish into the loop that calls them.
#undef LODE_LAMBDA
#define LODE_LAMBDA HWY_ATTR __attribute__((always_inline))

HWY_BEFORE_NAMESPACE();
namespace lode {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Words = hn::RebindToUnsigned<Floats>;
using Halves = hn::Rebind<std::uint16_t, Floats>;
using V = hn::Vec<Floats>;
using U = hn::Vec<Words>;

inline constexpr std::int64_t kLanes = hn::MaxLanes(Floats());

// How much of a vector a step of a loop covers: all of it, or the first n < kLanes elements.
struct Whole {};
struct Part {
  std::int64_t n;
};

HWY_INLINE V set(float x) {
  return hn::Set(Floats(), x);
}
HWY_INLINE V zero() {
  return hn::Zero(Floats());
}

// Upper halves of f32, rounded to nearest even. NaN stays NaN: the rounding is left out, so that a quiet one
// (all that arithmetic gives) keeps its upper half. Equal to core's to_bf16 but for signalling NaN, which
// `quiet` is for.
HWY_INLINE U bf16_bits(V v) {
  const Words words;
  const U bits = hn::BitCast(words, v);
  const U odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1u));
  const U bias =
      hn::IfThenZeroElse(hn::RebindMask(words, hn::IsNaN(v)), hn::Add(odd, hn::Set(words, 0x7fffu)));
  return hn::ShiftRight<16>(hn::Add(bits, bias));
}

// For values that come from memory and are stored without arithmetic between.
HWY_INLINE V quiet(V v) {
  const V bit = hn::BitCast(Floats(), hn::Set(Words(), 0x400000u));
  return hn::IfThenElse(hn::IsNaN(v), hn::Or(v, bit), v);
}

// bf16 in memory, rounded by the processor itself (AVX512-BF16): one instruction in place of eight. Equal to
// bf16_bits but for numbers below 2^-126, which become 0. Highway 1.0 has no target with it, hence the
// instruction spelt out. On other targets another name of bf16.
#if HWY_TARGET == HWY_AVX3
struct NativeBf16 {
  std::uint16_t bits;
};
HWY_INLINE hn::Vec<Halves> native_bf16(V v) {
  hn::Vec<Halves> out;
  asm("vcvtneps2bf16 %1, %0" : "=v"(out.raw) : "v"(v.raw));
  return out;
}
#else
using NativeBf16 = bf16;
#endif

// body(T()) with what a kernel is to read and write matrices of `dtype` as: float, NativeBf16 where the
// machine has it, or bf16.
template <class Body>
HWY_INLINE void for_type(DType dtype, const Body& body) {
  if (dtype == DType::f32) return body(float());
  if (rounds_to_bf16()) return body(NativeBf16());
  body(bf16());
}

HWY_INLINE V load(const float* p, Whole) {
  return hn::LoadU(Floats(), p);
}
HWY_INLINE V load(const bf16* p, Whole) {
  const auto halves = hn::LoadU(Halves(), reinterpret_cast<const std::uint16_t*>(p));
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(Words(), halves)));
}
HWY_INLINE void store(V v, float* p, Whole) {
  hn::StoreU(v, Floats(), p);
}
HWY_INLINE void store(V v, bf16* p, Whole) {
  hn::StoreU(hn::TruncateTo(Halves(), bf16_bits(v)), Halves(), reinterpret_cast<std::uint16_t*>(p));
}
#if HWY_TARGET == HWY_AVX3
HWY_INLINE V load(const NativeBf16* p, Whole) {
  return load(reinterpret_cast<const bf16*>(p), Whole());
}
HWY_INLINE void store(V v, NativeBf16* p, Whole) {
  hn::StoreU(native_bf16(v), Halves(), reinterpret_cast<std::uint16_t*>(p));
}
#endif

// The value that a store as T and a load would give.
template <class T>
HWY_INLINE V round_as(V v) {
  if constexpr (std::is_same_v<T, bf16>) {
    return hn::BitCast(Floats(), hn::ShiftLeft<16>(bf16_bits(v)));
  } else if constexpr (std::is_same_v<T, NativeBf16>) {
#if HWY_TARGET == HWY_AVX3
    return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(Words(), native_bf16(v))));
#endif
  } else {
    return v;
  }
}

// Elements beyond the part are loaded as 0 and not stored; no memory beyond it is touched.
template <class T>
HWY_INLINE V load(const T* p, Part part) {
  T buffer[kLanes] = {};
  std::memcpy(buffer, p, static_cast<std::size_t>(part.n) * sizeof(T));
  return load(buffer, Whole());
}
template <class T>
HWY_INLINE void store(V v, T* p, Part part) {
  T buffer[kLanes];
  store(v, buffer, Whole());
  std::memcpy(p, buffer, static_cast<std::size_t>(part.n) * sizeof(T));
}

// v with the elements beyond the part replaced.
HWY_INLINE V or_beyond(V v, Whole, float) {
  return v;
}
HWY_INLINE V or_beyond(V v, Part part, float fill) {
  return hn::IfThenElse(hn::FirstN(Floats(), static_cast<std::size_t>(part.n)), v, set(fill));
}

// body(i, Whole or Part) for i = 0, kLanes, ... over n elements.
template <class Body>
HWY_INLINE void for_vectors(std::int64_t n, Body body) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, Whole());
  if (i < n) body(i, Part{n - i});
}

template <int k>
using Slot = std::integral_constant<int, k>;

// The same for reductions: body(i, part, Slot<0..3>) in turn, so that four accumulators hide the latency of
// additions.
template <class Body>
HWY_INLINE void for_vectors_4(std::int64_t n, Body body) {
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    body(i, Whole(), Slot<0>());
    body(i + kLanes, Whole(), Slot<1>());
    body(i + 2 * kLanes, Whole(), Slot<2>());
    body(i + 3 * kLanes, Whole(), Slot<3>());
  }
  for (; i + kLanes <= n; i += kLanes) body(i, Whole(), Slot<0>());
  if (i < n) body(i, Part{n - i}, Slot<1>());
}

struct Accumulators {
  V v0, v1, v2, v3;

  // Spelt out: a default member initialiser would be compiled without the target's attributes.
  HWY_INLINE explicit Accumulators(float start = 0.0f) : v0(set(start)), v1(v0), v2(v0), v3(v0) {}

  template <int k>
  HWY_INLINE V& operator[](Slot<k>) {
    if constexpr (k == 0) return v0;
    if constexpr (k == 1) return v1;
    if constexpr (k == 2) return v2;
    if constexpr (k == 3) return v3;
  }
  HWY_INLINE float sum() const {
    return hn::GetLane(hn::SumOfLanes(Floats(), hn::Add(hn::Add(v0, v1), hn::Add(v2, v3))));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace lode
HWY_AFTER_NAMESPACE();

#endif  // per target
