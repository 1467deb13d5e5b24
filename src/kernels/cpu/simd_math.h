// Elementary functions on f32 vectors, per target as simd.h. Bounds are the largest relative errors against
// double precision, measured by tests/kernels/simd_math_test.cc over the whole range. NaN gives NaN.
#include "kernels/cpu/simd.h"

#if defined(LODE_KERNELS_CPU_SIMD_MATH_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LODE_KERNELS_CPU_SIMD_MATH_H
#undef LODE_KERNELS_CPU_SIMD_MATH_H
#else
#define LODE_KERNELS_CPU_SIMD_MATH_H
#endif

HWY_BEFORE_NAMESPACE();
namespace lode {
namespace HWY_NAMESPACE {

// exp(x) for x <= 88: x = n ln 2 + r, a polynomial in r (minimax on |r| <= ln 2 / 2), n added to the
// exponent. Relative error < 1.5e-7. Results under 2^-126 become 0.
HWY_INLINE V exp_not_large(V x) {
  const V magic = set(12582912.0f);  // 1.5 * 2^23: an addition rounds to an integer, kept in the low bits
  const V shifted = hn::MulAdd(x, set(1.44269504f), magic);
  const V n = hn::Sub(shifted, magic);
  V r = hn::NegMulAdd(n, set(0x1.62e4p-1f), x);  // ln 2 in two parts, the first exact in 16 bits
  r = hn::NegMulAdd(n, set(1.42860682e-6f), r);
  V p = set(0x1.6a23ccp-10f);
  p = hn::MulAdd(p, r, set(0x1.123a20p-7f));
  p = hn::MulAdd(p, r, set(0x1.5558f2p-5f));
  p = hn::MulAdd(p, r, set(0x1.555492p-3f));
  p = hn::MulAdd(p, r, set(0x1.fffffcp-2f));
  p = hn::MulAdd(p, r, set(1.0f));
  p = hn::MulAdd(p, r, set(1.0f));
  const Words words;
  const U exponent = hn::ShiftLeft<23>(hn::BitCast(words, shifted));
  const V y = hn::BitCast(Floats(), hn::Add(hn::BitCast(words, p), exponent));
  return hn::IfThenZeroElse(hn::Lt(x, set(-87.33f)), y);
}

// exp(x) for all x; infinite above 88.72.
HWY_INLINE V exp(V x) {
  return hn::IfThenElse(hn::Gt(x, set(88.72f)), set(__builtin_inff()), exp_not_large(x));
}

// 1 / (1 + exp(-x)). Relative error < 3e-7 down to x = -87; below -88.72 it is 0.
HWY_INLINE V sigmoid(V x) {
  return hn::Div(set(1.0f), hn::Add(set(1.0f), exp(hn::Neg(x))));
}

// The same for results that are rounded to bf16 (half a unit of its last place is 2^-9 at most). With AVX3 in
// half the time: relative error < 7e-5 down to x = -87; from -89 on it is 0. With y = -x log2(e), exp(-x) =
// 2^n 2^f, n = floor(y), by a polynomial in f (minimax, 3e-6).
HWY_INLINE V sigmoid_coarse(V x) {
#if HWY_TARGET == HWY_AVX3
  // Two instructions that Highway 1.0 does not offer: y - floor(y), and 2^floor(y) whatever y is.
  constexpr int kFloor = 9;
  const V y = hn::Mul(x, set(-1.44269504f));
  const V f{_mm512_reduce_ps(y.raw, kFloor)};
  V p = set(0x1.bb7cd4p-7f);
  p = hn::MulAdd(p, f, set(0x1.aa13f2p-5f));
  p = hn::MulAdd(p, f, set(0x1.ee798ap-3f));
  p = hn::MulAdd(p, f, set(0x1.62d166p-1f));
  p = hn::MulAdd(p, f, set(0x1.00002cp+0f));
  return hn::ApproximateReciprocal(hn::Add(set(1.0f), V{_mm512_scalef_ps(p.raw, y.raw)}));
#else
  return sigmoid(x);
#endif
}

// The standard normal distribution, cdf = (1 + erf(x / sqrt(2))) / 2, and gauss = exp(-x^2 / 2).
// cdf(-t) = gauss * R(t); R is smooth and is fitted on 0 <= t <= 14 by a polynomial in u = 1 / (1 + 0.35 t)
// (minimax, 3e-8). Absolute error < 1.2e-7; relative error of cdf < 1e-6 down to x = -5, < 6e-6 to x = -13.
struct Normal {
  V cdf, gauss;
};
HWY_INLINE Normal normal(V x) {
  const V t = hn::Abs(x);
  const V gauss = exp_not_large(hn::Mul(hn::Mul(x, x), set(-0.5f)));
  const V u = hn::Div(set(1.0f), hn::MulAdd(t, set(0.35f), set(1.0f)));
  V p = set(-0.029146134584260054f);
  p = hn::MulAdd(p, u, set(0.14397268329560248f));
  p = hn::MulAdd(p, u, set(-0.2557162690876767f));
  p = hn::MulAdd(p, u, set(0.15917643286435487f));
  p = hn::MulAdd(p, u, set(-0.023111376342766193f));
  p = hn::MulAdd(p, u, set(0.10550864516523685f));
  p = hn::MulAdd(p, u, set(0.11983270849077855f));
  p = hn::MulAdd(p, u, set(0.1398618911586388f));
  p = hn::MulAdd(p, u, set(0.13962140309291324f));
  const V tail = hn::Mul(gauss, hn::Mul(p, u));
  return {hn::IfThenElse(hn::Lt(x, zero()), tail, hn::Sub(set(1.0f), tail)), gauss};
}

}  // namespace HWY_NAMESPACE
}  // namespace lode
HWY_AFTER_NAMESPACE();

#endif  // per target
