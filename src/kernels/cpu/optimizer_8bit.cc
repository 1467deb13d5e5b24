// AdamW with moments in 8 bits.
#include <cmath>

#include "kernels/cpu/optimizer_8bit_map.h"
#include "kernels/cpu/ranges.h"
#include "kernels/optimizer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer_8bit.cc"
#include "kernels/cpu/simd.h"

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
  for (std::int64_t i = 0; i < kBlock8bit; i += kLanes) {
    const V value = hn::Mul(hn::LoadU(Floats(), x + i), inverse);
    const V size = hn::Min(hn::Abs(value), set(1.0f));
    auto group = hn::Zero(indices);
    for (const float begin : map.begin) {
      group = hn::Sub(group, hn::VecFromMask(indices, hn::RebindMask(indices, hn::Gt(size, set(begin)))));
    }
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

struct Pointers {
  float* weight;
  const float* grad;
  std::uint8_t *codes1, *codes2;
  bf16* copy;
};

void whole_block(const AdamW8bitStep& a, const Pointers& p, float* absmax1, float* absmax2) {
  alignas(64) float m[kBlock8bit], v[kBlock8bit];
  const Map8bit &map1 = map_8bit(true), &map2 = map_8bit(false);
  dequantize(map1, p.codes1, *absmax1, m);
  dequantize(map2, p.codes2, *absmax2, v);
  const auto constant = [](double x) { return static_cast<float>(x); };
  const float b1 = constant(a.beta1), rest1 = constant(1.0 - a.beta1);
  const float b2 = constant(a.beta2), rest2 = constant(1.0 - a.beta2);
  const float decay = constant(1.0 - a.lr * a.weight_decay), rate = constant(a.lr / a.bias_correction1);
  const float root = constant(1.0 / std::sqrt(a.bias_correction2)), eps = constant(a.eps);
  const float grad_scale = constant(a.grad_scale);
  for_vectors(kBlock8bit, [&](std::int64_t i, auto part) LODE_LAMBDA {
    const V g = hn::Mul(load(p.grad + i, part), set(grad_scale));
    const V m1 = hn::MulAdd(set(rest1), g, hn::Mul(set(b1), load(m + i, part)));
    const V v1 = hn::MulAdd(hn::Mul(set(rest2), g), g, hn::Mul(set(b2), load(v + i, part)));
    const V step = hn::Div(m1, hn::MulAdd(hn::Sqrt(v1), set(root), set(eps)));
    const V w = hn::NegMulAdd(set(rate), step, hn::Mul(set(decay), load(p.weight + i, part)));
    store(m1, m + i, part);
    store(v1, v + i, part);
    store(w, p.weight + i, part);
    if (p.copy != nullptr) store(w, p.copy + i, part);
  });
  *absmax1 = quantize(map1, m, p.codes1);
  *absmax2 = quantize(map2, v, p.codes2);
}

// The last block, through buffers whose rest is 0.
void part_block(const AdamW8bitStep& a, const Pointers& p, std::int64_t n, float* absmax1, float* absmax2) {
  alignas(64) float weight[kBlock8bit] = {}, grad[kBlock8bit] = {};
  alignas(64) std::uint8_t codes1[kBlock8bit], codes2[kBlock8bit] = {};
  bf16 copy[kBlock8bit];
  std::fill_n(codes1, kBlock8bit, std::uint8_t{127});
  std::copy_n(p.weight, n, weight);
  std::copy_n(p.grad, n, grad);
  std::copy_n(p.codes1, n, codes1);
  std::copy_n(p.codes2, n, codes2);
  whole_block(a, {weight, grad, codes1, codes2, copy}, absmax1, absmax2);
  std::copy_n(weight, n, p.weight);
  std::copy_n(codes1, n, p.codes1);
  std::copy_n(codes2, n, p.codes2);
  if (p.copy != nullptr) std::copy_n(copy, n, p.copy);
}

void adamw_8bit_block(const AdamW8bitStep& a, std::int64_t block) {
  const std::int64_t begin = block * kBlock8bit, n = std::min(kBlock8bit, a.weight.numel() - begin);
  const Pointers p{a.weight.row<float>(0) + begin, a.grad.row<float>(0) + begin, a.codes1 + begin,
                   a.codes2 + begin, a.copy.data == nullptr ? nullptr : a.copy.row<bf16>(0) + begin};
  if (n == kBlock8bit) {
    whole_block(a, p, a.absmax1 + block, a.absmax2 + block);
  } else {
    part_block(a, p, n, a.absmax1 + block, a.absmax2 + block);
  }
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
HWY_EXPORT(quantize_part);

void adamw_8bit_step(KernelContext& context, const AdamW8bitStep& a) {
  LODE_ASSERT(a.weight.contiguous() && a.grad.contiguous() && a.grad.numel() == a.weight.numel());
  LODE_ASSERT(a.copy.data == nullptr || a.copy.contiguous());
  const auto step = HWY_DYNAMIC_DISPATCH(adamw_8bit_block);
  parallel_for(context.threads, ceil_div(a.weight.numel(), kBlock8bit), kGrain / kBlock8bit,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t block = begin; block < end; ++block) step(a, block);
               });
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
