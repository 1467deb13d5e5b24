#include "kernels/rotary.h"

#include "kernels/cpu/ranges.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rotary.cc"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace lode {
namespace HWY_NAMESPACE {
namespace {

constexpr std::int64_t kAhead = 4;  // tokens, whose rows are too short for the processor to foresee the next

template <class T, bool inverse>
void rotate(const RotaryApply& a, std::int64_t begin, std::int64_t end) {
  const std::int64_t half = a.rotary_dim / 2;
  for (std::int64_t t = begin; t < end; ++t) {
    const std::int64_t position = a.positions[static_cast<std::size_t>(t)];
    const float* cos = a.cos.row<float>(position);
    const float* sin = a.sin.row<float>(position);
    if (t + kAhead < end) {
      const auto* next = reinterpret_cast<const char*>(a.x.row<T>(t + kAhead));
      for (std::size_t at = 0; at < static_cast<std::size_t>(a.x.cols) * sizeof(T); at += 64)
        __builtin_prefetch(next + at, 1);
    }
    for (std::int64_t head = 0; head < a.heads; ++head) {
      T* low = a.x.row<T>(t) + head * a.head_dim;
      T* high = low + half;
      for_vectors(half, [&](std::int64_t j, auto part) LODE_LAMBDA {
        const V c = load(cos + j, part);
        const V s = inverse ? hn::Neg(load(sin + j, part)) : load(sin + j, part);
        const V x = load(low + j, part), y = load(high + j, part);
        store(hn::NegMulAdd(y, s, hn::Mul(x, c)), low + j, part);
        store(hn::MulAdd(x, s, hn::Mul(y, c)), high + j, part);
      });
    }
  }
}

void rotary_rows(const RotaryApply& a, std::int64_t begin, std::int64_t end) {
  for_type(a.x.dtype, [&](auto type) {
    using T = decltype(type);
    a.inverse ? rotate<T, true>(a, begin, end) : rotate<T, false>(a, begin, end);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lode
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lode {
namespace {

HWY_EXPORT(rotary_rows);

void rotary_cpu(KernelContext& context, const RotaryApply& a) {
  LODE_ASSERT(static_cast<std::int64_t>(a.positions.size()) == a.x.rows);
  for_rows(context, a.x.rows, a.x.cols, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(rotary_rows)(a, begin, end);
  });
}

const KernelEntry entry_f32(rotary_apply, DType::f32, rotary_cpu);
const KernelEntry entry_bf16(rotary_apply, DType::bf16, rotary_cpu);

}  // namespace
}  // namespace lode
#endif  // HWY_ONCE
