#include "kernels/norm.h"

#include <cmath>

#include "kernels/cpu/ranges.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cc"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace lode {
namespace HWY_NAMESPACE {
namespace {

// Sum of h and of h^2; h = x + delta is written when there is a delta.
struct Moments {
  float sum, squares;
};
template <class T>
HWY_INLINE Moments add_and_sum(const T* x, const T* delta, T* h, std::int64_t d) {
  Accumulators sum, squares;
  const auto take = [&](V value, auto slot) LODE_LAMBDA {
    sum[slot] = hn::Add(sum[slot], value);
    squares[slot] = hn::MulAdd(value, value, squares[slot]);
  };
  if (delta == nullptr) {
    for_vectors_4(d,
                  [&](std::int64_t c, auto part, auto slot) LODE_LAMBDA { take(load(x + c, part), slot); });
  } else {
    for_vectors_4(d, [&](std::int64_t c, auto part, auto slot) LODE_LAMBDA {
      const V value = round_as<T>(hn::Add(load(x + c, part), load(delta + c, part)));
      store(value, h + c, part);
      take(value, slot);
    });
  }
  return {sum.sum(), squares.sum()};
}

template <class T>
HWY_INLINE float centred_squares(const T* h, float mean, std::int64_t d) {
  Accumulators squares;
  for_vectors_4(d, [&](std::int64_t c, auto part, auto slot) LODE_LAMBDA {
    const V centred = or_beyond(hn::Sub(load(h + c, part), set(mean)), part, 0.0f);
    squares[slot] = hn::MulAdd(centred, centred, squares[slot]);
  });
  return squares.sum();
}

template <class T, NormKind kind>
void forward(const NormForward& a, std::int64_t begin, std::int64_t end) {
  const std::int64_t d = a.x.cols / a.groups;
  const float* weight = a.weight.row<float>(0);
  const float* bias = static_cast<const float*>(a.bias.data);
  const V offset = set(a.offset);
  for (std::int64_t i = begin * a.groups; i < end * a.groups; ++i) {
    const std::int64_t r = i / a.groups, at = i % a.groups * d;
    const T* h = a.x.row<T>(r) + at;
    Moments moments;
    if (a.delta.data == nullptr) {
      moments = add_and_sum<T>(h, nullptr, nullptr, d);
    } else {
      moments = add_and_sum<T>(h, a.delta.row<T>(r) + at, a.h.row<T>(r) + at, d);
      h = a.h.row<T>(r) + at;
    }
    const float n = static_cast<float>(d);
    float mean = 0.0f, variance = moments.squares / n;
    if constexpr (kind == NormKind::layer) {
      mean = moments.sum / n;
      variance = centred_squares(h, mean, d) / n;
      a.mean.row<float>(0)[i] = mean;
    }
    const float rstd = 1.0f / std::sqrt(variance + a.eps);
    a.rstd.row<float>(0)[i] = rstd;
    T* y = a.y.row<T>(r) + at;
    const auto normed = [&](std::int64_t c, auto part) LODE_LAMBDA {
      V value = load(h + c, part);
      if constexpr (kind == NormKind::layer) value = hn::Sub(value, set(mean));
      return hn::Mul(value, set(rstd));
    };
    if (bias == nullptr) {
      for_vectors(d, [&](std::int64_t c, auto part) LODE_LAMBDA {
        store(hn::Mul(normed(c, part), hn::Add(offset, load(weight + c, part))), y + c, part);
      });
    } else {
      for_vectors(d, [&](std::int64_t c, auto part) LODE_LAMBDA {
        const V factor = hn::Add(offset, load(weight + c, part));
        store(hn::MulAdd(normed(c, part), factor, load(bias + c, part)), y + c, part);
      });
    }
  }
}

// With n = (h - mean) * rstd and g = dy * weight: dx = rstd * (g - mean(g) - n * mean(g * n)), mean(g) for
// LayerNorm only.
template <class T, NormKind kind>
void backward(const NormBackward& a, std::int64_t begin, std::int64_t end, float* dweight, float* dbias) {
  const std::int64_t d = a.h.cols / a.groups;
  const float* weight = a.weight.row<float>(0);
  const V offset = set(a.offset);
  if (dweight != nullptr) std::fill_n(dweight, d, 0.0f);
  if (dbias != nullptr) std::fill_n(dbias, d, 0.0f);
  for (std::int64_t i = begin * a.groups; i < end * a.groups; ++i) {
    const std::int64_t r = i / a.groups, at = i % a.groups * d;
    const T* dy = a.dy.row<T>(r) + at;
    const T* h = a.h.row<T>(r) + at;
    const T* dh = a.dh.data == nullptr ? nullptr : a.dh.row<T>(r) + at;
    T* dx = a.dx.row<T>(r) + at;
    const float rstd = a.rstd.row<float>(0)[i];
    const float mean = kind == NormKind::layer ? a.mean.row<float>(0)[i] : 0.0f;
    const auto normed = [&](std::int64_t c, auto part) LODE_LAMBDA {
      V value = load(h + c, part);
      if constexpr (kind == NormKind::layer) value = hn::Sub(value, set(mean));
      return hn::Mul(value, set(rstd));
    };
    Accumulators sum_g, sum_gn;
    for_vectors_4(d, [&](std::int64_t c, auto part, auto slot) LODE_LAMBDA {
      const V g = hn::Mul(load(dy + c, part), hn::Add(offset, load(weight + c, part)));
      if constexpr (kind == NormKind::layer) sum_g[slot] = hn::Add(sum_g[slot], g);
      sum_gn[slot] = hn::MulAdd(g, normed(c, part), sum_gn[slot]);
    });
    const V mean_gn = set(sum_gn.sum() / static_cast<float>(d));
    const V mean_g = set(kind == NormKind::layer ? sum_g.sum() / static_cast<float>(d) : 0.0f);
    for_vectors(d, [&](std::int64_t c, auto part) LODE_LAMBDA {
      const V dy_c = load(dy + c, part);
      const V n = normed(c, part);
      if (dweight != nullptr) store(hn::MulAdd(dy_c, n, load(dweight + c, part)), dweight + c, part);
      if (dbias != nullptr) store(hn::Add(dy_c, load(dbias + c, part)), dbias + c, part);
      V value = hn::Mul(dy_c, hn::Add(offset, load(weight + c, part)));
      if constexpr (kind == NormKind::layer) value = hn::Sub(value, mean_g);
      value = hn::Mul(set(rstd), hn::NegMulAdd(n, mean_gn, value));
      if (dh != nullptr) value = hn::Add(value, load(dh + c, part));
      store(value, dx + c, part);
    });
  }
}

void norm_forward_rows(const NormForward& a, std::int64_t begin, std::int64_t end) {
  for_type(a.x.dtype, [&](auto type) {
    using T = decltype(type);
    a.kind == NormKind::rms ? forward<T, NormKind::rms>(a, begin, end)
                            : forward<T, NormKind::layer>(a, begin, end);
  });
}

void norm_backward_rows(const NormBackward& a, std::int64_t begin, std::int64_t end, float* dweight,
                        float* dbias) {
  for_type(a.h.dtype, [&](auto type) {
    using T = decltype(type);
    a.kind == NormKind::rms ? backward<T, NormKind::rms>(a, begin, end, dweight, dbias)
                            : backward<T, NormKind::layer>(a, begin, end, dweight, dbias);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lode
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lode {
namespace {

HWY_EXPORT(norm_forward_rows);
HWY_EXPORT(norm_backward_rows);

void norm_forward_cpu(KernelContext& context, const NormForward& a) {
  LODE_ASSERT(a.weight.cols * a.groups == a.x.cols);
  for_rows(context, a.x.rows, a.x.cols, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(norm_forward_rows)(a, begin, end);
  });
}

void norm_backward_cpu(KernelContext& context, const NormBackward& a) {
  const std::int64_t rows = a.h.rows, d = a.h.cols / a.groups;
  LODE_ASSERT(a.weight.cols == d && d * a.groups == a.h.cols);
  const std::int64_t blocks = ceil_div(rows, kReduceRows);
  Workspace::Scope scope(*context.workspace);
  float* dweight = a.dweight.data == nullptr ? nullptr : scope.take<float>(blocks * d);
  float* dbias = a.dbias.data == nullptr ? nullptr : scope.take<float>(blocks * d);
  parallel_for(context.threads, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      HWY_DYNAMIC_DISPATCH(norm_backward_rows)
      (a, block * kReduceRows, std::min(rows, (block + 1) * kReduceRows),
       dweight == nullptr ? nullptr : dweight + block * d, dbias == nullptr ? nullptr : dbias + block * d);
    }
  });
  if (dweight != nullptr) add_partials(context, dweight, blocks, d, true, a.dweight.row<float>(0));
  if (dbias != nullptr) add_partials(context, dbias, blocks, d, true, a.dbias.row<float>(0));
}

const KernelEntry forward_f32(norm_forward, DType::f32, norm_forward_cpu);
const KernelEntry forward_bf16(norm_forward, DType::bf16, norm_forward_cpu);
const KernelEntry backward_f32(norm_backward, DType::f32, norm_backward_cpu);
const KernelEntry backward_bf16(norm_backward, DType::bf16, norm_backward_cpu);

}  // namespace
}  // namespace lode
#endif  // HWY_ONCE
