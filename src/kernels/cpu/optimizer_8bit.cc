// AdamW and Lion with moments in 8 bits.
#include <cmath>

#include "kernels/cpu/optimizer_8bit_map.h"
#include "kernels/cpu/ranges.h"
#include "kernels/optimizer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer_8bit.cc"
#include "kernels/cpu/weight_simd.h"

HWY_BEFORE_NAMESPACE();
namespace lode {
namespace HWY_NAMESPACE {
namespace {

using Indices = hn::RebindToSigned<Floats>;
using Bytes = hn::Rebind<std::uint8_t, Floats>;

// Entry `index` of 16.
template <class Index>
HWY_INLINE V entry_of(const std::array<float, 16>& table, Index index) {
  if constexpr (kLanes >= 16) {
    return hn::TableLookupLanes(hn::LoadU(Floats(), table.data()), hn::IndicesFromVec(Floats(), index));
  } else {
    return hn::GatherIndex(Floats(), table.data(), index);
  }
}

// 256 values of whole vectors at a time: a partial block lies in padded buffers.
void dequantize(const Map8bit& map, const std::uint8_t* codes, float absmax, float* out) {
  const Indices indices;
  const auto code_of_0 = hn::Set(indices, map.is_signed ? 127 : 0);
  const auto offset = hn::Set(indices, map.is_signed ? 0 : 1);
  for (std::int64_t i = 0; i < kBlock8bit; i += kLanes) {
    const auto code = hn::Sub(hn::PromoteTo(indices, hn::LoadU(Bytes(), codes + i)), code_of_0);
    const auto u = hn::BitCast(indices, hn::ConvertTo(Floats(), hn::Add(hn::Abs(code), offset)));
    const auto exponent = hn::Max(hn::Sub(hn::ShiftRight<23>(u), hn::Set(indices, 127)), hn::Zero(indices));
    const V mantissa =
        hn::BitCast(Floats(), hn::Or(hn::And(u, hn::Set(indices, 0x7fffff)), hn::Set(indices, 0x3f800000)));
    V value = hn::MulAdd(entry_of(map.slope, exponent), mantissa, entry_of(map.base, exponent));
    value = hn::IfThenZeroElse(hn::RebindMask(Floats(), hn::Eq(code, hn::Zero(indices))), value);
    value = hn::Mul(value, set(absmax));
    hn::StoreU(
        hn::IfThenElse(hn::RebindMask(Floats(), hn::Lt(code, hn::Zero(indices))), hn::Neg(value), value),
        Floats(), out + i);
  }
}

float largest(const float* x) {
  V most = zero();
  for (std::int64_t i = 0; i < kBlock8bit; i += kLanes)
    most = hn::Max(most, hn::Abs(hn::LoadU(Floats(), x + i)));
  return hn::GetLane(hn::MaxOfLanes(Floats(), most));
}

float quantize(const Map8bit& map, const float* x, std::uint8_t* codes) {
  const float absmax = largest(x);
  const V inverse = set(1.0f / std::max(absmax, 1e-38f));
  const Indices indices;
  const auto none = hn::Zero(indices), first_pair = hn::Set(indices, Map8bit::kFirstPair);
  for (std::int64_t i = 0; i < kBlock8bit; i += kLanes) {
    const V value = hn::Mul(hn::LoadU(Floats(), x + i), inverse);
    const V size = hn::Min(hn::Abs(value), set(1.0f));
    const auto pair = hn::Max(hn::Sub(hn::ShiftRight<24>(hn::BitCast(indices, size)), first_pair), none);
    const auto next = hn::RebindMask(indices, hn::Gt(size, entry_of(map.next_above, pair)));
    const auto group =
        hn::Sub(hn::ConvertTo(indices, entry_of(map.group_at, pair)), hn::VecFromMask(indices, next));
    const V cell = hn::Floor(hn::MulAdd(size, entry_of(map.cells, group), entry_of(map.shift, group)));
    const V u = hn::Min(hn::Max(cell, entry_of(map.low, group)), entry_of(map.high, group));
    auto code = hn::Sub(hn::ConvertTo(indices, u), hn::Set(indices, map.is_signed ? 0 : 1));
    if (map.is_signed) {
      const auto negative = hn::Min(code, hn::Set(indices, 127));
      const auto is_negative = hn::RebindMask(indices, hn::Lt(value, zero()));
      code = hn::Add(hn::Set(indices, 127), hn::IfThenElse(is_negative, hn::Neg(negative), code));
    }
    hn::StoreU(hn::DemoteTo(Bytes(), code), Bytes(), codes + i);
  }
  return absmax;
}

// A block of 8-bit moments while its weights are updated.
struct Moment {
  const Map8bit& map;
  std::uint8_t* codes;
  float* absmax;
  std::int64_t n;
  alignas(64) float values[kBlock8bit];

  HWY_INLINE Moment(bool is_signed, std::uint8_t* all_codes, float* all_absmax, std::int64_t block,
                    std::int64_t count)
      : map(map_8bit(is_signed)),
        codes(all_codes + block * kBlock8bit),
        absmax(all_absmax + block),
        n(count) {
    if (n == kBlock8bit) {
      dequantize(map, codes, *absmax, values);
    } else {
      alignas(64) std::uint8_t padded[kBlock8bit];
      std::fill_n(padded, kBlock8bit, static_cast<std::uint8_t>(is_signed ? 127 : 0));
      std::copy_n(codes, n, padded);
      dequantize(map, padded, *absmax, values);
    }
  }
  HWY_INLINE void write() {
    if (n == kBlock8bit) {
      *absmax = quantize(map, values, codes);
      return;
    }
    alignas(64) std::uint8_t padded[kBlock8bit];
    std::fill(values + n, values + kBlock8bit, 0.0f);
    *absmax = quantize(map, values, padded);
    std::copy_n(padded, n, codes);
  }
};

template <class Step>
Blocks::Block elements_of(const Step& a, std::int64_t block) {
  const std::int64_t begin = block * kBlock8bit;
  return {0, begin, std::min(kBlock8bit, a.grad.numel() - begin)};
}

void adamw_8bit_block(const AdamW8bitStep& a, std::int64_t block) {
  const Blocks::Block at = elements_of(a, block);
  Moment first(true, a.codes1, a.absmax1, block, at.n), second(false, a.codes2, a.absmax2, block, at.n);
  float *const m = first.values, *const v = second.values;
  const float* grad = a.grad.row<float>(0) + at.begin;
  const auto constant = [](double x) { return static_cast<float>(x); };
  const float b1 = constant(a.beta1), rest1 = constant(1.0 - a.beta1);
  const float b2 = constant(a.beta2), rest2 = constant(1.0 - a.beta2);
  const float decay = constant(1.0 - a.lr * a.weight_decay), rate = constant(a.lr / a.bias_correction1);
  const float root = constant(1.0 / std::sqrt(a.bias_correction2)), eps = constant(a.eps);
  const float grad_scale = constant(a.grad_scale);
  for_weights(a.weight, at, [&](std::int64_t i, auto part, V weight) LODE_LAMBDA {
    const V g = hn::Mul(load(grad + i, part), set(grad_scale));
    const V m1 = hn::MulAdd(set(rest1), g, hn::Mul(set(b1), load(m + i, part)));
    const V v1 = hn::MulAdd(hn::Mul(set(rest2), g), g, hn::Mul(set(b2), load(v + i, part)));
    const V step = hn::Div(m1, hn::MulAdd(hn::Sqrt(v1), set(root), set(eps)));
    store(m1, m + i, part);
    store(v1, v + i, part);
    return hn::NegMulAdd(set(rate), step, hn::Mul(set(decay), weight));
  });
  first.write();
  second.write();
}

void lion_8bit_block(const Lion8bitStep& a, std::int64_t block) {
  const Blocks::Block at = elements_of(a, block);
  Moment moment(true, a.codes, a.absmax, block, at.n);
  float* const m = moment.values;
  const float* grad = a.grad.row<float>(0) + at.begin;
  const auto constant = [](double x) { return static_cast<float>(x); };
  const float b1 = constant(a.beta1), rest1 = constant(1.0 - a.beta1);
  const float b2 = constant(a.beta2), rest2 = constant(1.0 - a.beta2);
  const float decay = constant(1.0 - a.lr * a.weight_decay), lr = constant(a.lr);
  const float grad_scale = constant(a.grad_scale);
  for_weights(a.weight, at, [&](std::int64_t i, auto part, V weight) LODE_LAMBDA {
    const V g = hn::Mul(load(grad + i, part), set(grad_scale)), before = load(m + i, part);
    const V direction = hn::MulAdd(set(rest1), g, hn::Mul(set(b1), before));
    const V step = hn::IfThenElseZero(hn::Ne(direction, zero()), hn::CopySign(set(lr), direction));
    store(hn::MulAdd(set(rest2), g, hn::Mul(set(b2), before)), m + i, part);
    return hn::Sub(hn::Mul(set(decay), weight), step);
  });
  moment.write();
}

float quantize_part(const float* x, std::int64_t n, bool is_signed, std::uint8_t* codes) {
  alignas(64) float values[kBlock8bit] = {};
  alignas(64) std::uint8_t found[kBlock8bit];
  std::copy_n(x, n, values);
  const float absmax = quantize(map_8bit(is_signed), values, found);
  std::copy_n(found, n, codes);
  return absmax;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lode
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lode {

HWY_EXPORT(adamw_8bit_block);
HWY_EXPORT(lion_8bit_block);
HWY_EXPORT(quantize_part);

namespace {

template <class Step, class Block>
void for_8bit_blocks(KernelContext& context, const Step& a, Block step) {
  const auto whole = [&](const ConstView& view) {
    return view.data == nullptr || (view.contiguous() && view.numel() == a.grad.numel());
  };
  LODE_ASSERT(whole(a.grad) && whole(a.weight.values) && whole(a.weight.copy) &&
              whole(a.weight.compensation));
  parallel_for(context.threads, ceil_div(a.grad.numel(), kBlock8bit), kGrain / kBlock8bit,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t block = begin; block < end; ++block) step(a, block);
               });
}

}  // namespace

void adamw_8bit_step(KernelContext& context, const AdamW8bitStep& a) {
  for_8bit_blocks(context, a, HWY_DYNAMIC_DISPATCH(adamw_8bit_block));
}

void lion_8bit_step(KernelContext& context, const Lion8bitStep& a) {
  for_8bit_blocks(context, a, HWY_DYNAMIC_DISPATCH(lion_8bit_block));
}

const std::array<float, 256>& signed_map_8bit() {
  return map_8bit(true).by_code;
}

const std::array<float, 256>& unsigned_map_8bit() {
  return map_8bit(false).by_code;
}

float quantize_8bit(const float* x, std::int64_t n, bool is_signed, std::uint8_t* codes) {
  LODE_ASSERT(n <= kBlock8bit);
  return HWY_DYNAMIC_DISPATCH(quantize_part)(x, n, is_signed, codes);
}

}  // namespace lode
#endif  // HWY_ONCE
