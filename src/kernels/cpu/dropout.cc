#include "kernels/dropout.h"

#include <cmath>

#include "kernels/cpu/ranges.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dropout.cc"
#include "kernels/cpu/philox_simd.h"

HWY_BEFORE_NAMESPACE();
namespace lode {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void drop(const DropoutApply& a, std::uint32_t threshold, float scale, std::int64_t begin, std::int64_t end) {
  const Words words;
  const std::int64_t d = a.x.cols;
  HWY_ALIGN std::uint32_t random[4 * kLanes];
  for (std::int64_t t = begin; t < end; ++t) {
    const auto token = static_cast<std::size_t>(t);
    const auto segment = static_cast<std::size_t>(a.segments->segment_of()[token]);
    const auto sample = static_cast<std::uint64_t>(a.segments->list()[segment].sample);
    const U position = hn::Set(words, static_cast<std::uint32_t>(a.segments->positions()[token]));
    const U sample_low = hn::Set(words, static_cast<std::uint32_t>(sample));
    const U sample_high = hn::Set(words, static_cast<std::uint32_t>(sample >> 32));
    const T* x = a.x.row<T>(t);
    T* y = a.y.row<T>(t);
    for (std::int64_t c = 0; c < d; c += 4 * kLanes) {
      const PhiloxWords w = philox_vector(
          {hn::Iota(words, static_cast<std::uint32_t>(c / 4)), position, sample_low, sample_high}, a.key);
      hn::StoreInterleaved4(w.w0, w.w1, w.w2, w.w3, words, random);
      for_vectors(std::min(4 * kLanes, d - c), [&](std::int64_t i, auto part) LODE_LAMBDA {
        const auto dropped = hn::Lt(hn::Load(words, random + i), hn::Set(words, threshold));
        const V v = hn::Mul(load(x + c + i, part), set(scale));
        store(hn::IfThenZeroElse(hn::RebindMask(Floats(), dropped), v), y + c + i, part);
      });
    }
  }
}

void dropout_rows(const DropoutApply& a, std::uint32_t threshold, float scale, std::int64_t begin,
                  std::int64_t end) {
  a.x.dtype == DType::bf16 ? drop<bf16>(a, threshold, scale, begin, end)
                           : drop<float>(a, threshold, scale, begin, end);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lode
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lode {
namespace {

HWY_EXPORT(dropout_rows);

void dropout_cpu(KernelContext& context, const DropoutApply& a) {
  LODE_ASSERT(a.p >= 0.0f && a.p < 1.0f && a.segments->num_tokens() == a.x.rows);
  const auto threshold = static_cast<std::uint32_t>(std::ceil(static_cast<double>(a.p) * 0x1p32));
  const float scale = static_cast<float>(1.0 / (1.0 - static_cast<double>(a.p)));
  for_rows(context, a.x.rows, a.x.cols, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(dropout_rows)(a, threshold, scale, begin, end);
  });
}

const KernelEntry entry_f32(dropout_apply, DType::f32, dropout_cpu);
const KernelEntry entry_bf16(dropout_apply, DType::bf16, dropout_cpu);

}  // namespace
}  // namespace lode
#endif  // HWY_ONCE
