// y[r, n] = sum over k of x[r, k] * w[n, k] (+ bias[n]) (+ y[r, n]) for at most 4 rows r. f32 arithmetic;
// every output is summed by one thread in one order.
#include "kernels/cpu/matvec.h"

#include <algorithm>

#include "core/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matvec.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lode {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;

HWY_INLINE hn::Vec<F32> load(const float* from) {
  return hn::LoadU(F32(), from);
}
HWY_INLINE hn::Vec<F32> load(const bf16* from) {
  const hn::Rebind<std::uint16_t, F32> half;
  const hn::RebindToUnsigned<F32> full;
  const auto bits = hn::LoadU(half, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(full, bits)));
}

HWY_INLINE void store(const MatMul& p, const float* bias, std::int64_t r, std::int64_t n, float value) {
  if (bias != nullptr) value += bias[n];
  if (p.c.dtype == DType::f32) {
    float& out = p.c.row<float>(r)[n];
    out = p.accumulate ? out + value : value;
  } else {
    bf16& out = p.c.row<bf16>(r)[n];
    out = to_bf16(p.accumulate ? to_f32(out) + value : value);
  }
}

// Output n of all rows; x is [kRows, K] without gaps. One row of the weights after the other: memory delivers
// one long stream at twice the speed of several short ones. Four sums hide the latency of additions.
template <class W, int kRows>
HWY_INLINE void dot_row(const MatMul& p, const float* x, const float* bias, std::int64_t n) {
  constexpr int kSums = 4;
  const F32 d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t depth = p.b.cols;
  const W* row = p.b.row<W>(n);
  hn::Vec<F32> sum[kRows][kSums];
  for (auto& sums : sum) {
    for (auto& v : sums) v = hn::Zero(d);
  }
  std::int64_t k = 0;
  for (; k + kSums * lanes <= depth; k += kSums * lanes) {
    for (int s = 0; s < kSums; ++s) {
      const auto w = load(row + k + s * lanes);
      for (int r = 0; r < kRows; ++r)
        sum[r][s] = hn::MulAdd(load(x + r * depth + k + s * lanes), w, sum[r][s]);
    }
  }
  for (; k + lanes <= depth; k += lanes) {
    const auto w = load(row + k);
    for (int r = 0; r < kRows; ++r) sum[r][0] = hn::MulAdd(load(x + r * depth + k), w, sum[r][0]);
  }
  for (int r = 0; r < kRows; ++r) {
    const auto all = hn::Add(hn::Add(sum[r][0], sum[r][1]), hn::Add(sum[r][2], sum[r][3]));
    float value = hn::GetLane(hn::SumOfLanes(d, all));
    for (std::int64_t tail = k; tail < depth; ++tail) value += x[r * depth + tail] * to_f32(row[tail]);
    store(p, bias, r, n, value);
  }
}

template <class W, int kRows>
void outputs(const MatMul& p, const float* x, std::int64_t begin, std::int64_t end) {
  const float* bias = p.bias.data != nullptr ? p.bias.row<float>(0) : nullptr;
  for (std::int64_t n = begin; n < end; ++n) dot_row<W, kRows>(p, x, bias, n);
}

template <class W>
void outputs_of(const MatMul& p, const float* x, std::int64_t begin, std::int64_t end) {
  switch (p.c.rows) {
    case 1:
      return outputs<W, 1>(p, x, begin, end);
    case 2:
      return outputs<W, 2>(p, x, begin, end);
    case 3:
      return outputs<W, 3>(p, x, begin, end);
    default:
      return outputs<W, 4>(p, x, begin, end);
  }
}

void matvec_outputs(const MatMul& p, const float* x, std::int64_t begin, std::int64_t end) {
  if (p.b.dtype == DType::f32) return outputs_of<float>(p, x, begin, end);
  outputs_of<bf16>(p, x, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace lode
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lode {

HWY_EXPORT(matvec_outputs);

bool matvec_fits(const MatMul& p) {
  return p.transpose_b && !p.transpose_a && p.c.rows <= 4;
}

void matvec(KernelContext& context, const MatMul& p) {
  const std::int64_t depth = p.b.cols;
  Workspace::Scope workspace(*context.workspace);
  float* x = workspace.take<float>(p.a.rows * depth);
  for (std::int64_t r = 0; r < p.a.rows; ++r) {
    for (std::int64_t k = 0; k < depth; ++k) {
      x[r * depth + k] = p.a.dtype == DType::f32 ? p.a.row<float>(r)[k] : to_f32(p.a.row<bf16>(r)[k]);
    }
  }
  const auto run = HWY_DYNAMIC_DISPATCH(matvec_outputs);
  const std::int64_t grain = std::max<std::int64_t>(1, 65536 / std::max<std::int64_t>(depth, 1));
  parallel_for(context.threads, p.c.cols, grain,
               [&](std::int64_t begin, std::int64_t end) { run(p, x, begin, end); });
}

}  // namespace lode
#endif
