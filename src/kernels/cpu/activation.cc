#include "kernels/activation.h"

#include "kernels/cpu/ranges.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cc"
#include "kernels/cpu/simd.h"
// After simd.h, per target.
#include "kernels/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace lode {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void swiglu(ConstView gate_up, View y, std::int64_t begin, std::int64_t end) {
  const std::int64_t n = y.cols;
  for (std::int64_t r = begin; r < end; ++r) {
    const T* gate = gate_up.row<T>(r);
    const T* up = gate + n;
    T* out = y.row<T>(r);
    for_vectors(n, [&](std::int64_t c, auto part) LODE_LAMBDA {
      const V g = load(gate + c, part);
      store(hn::Mul(hn::Mul(g, sigmoid(g)), load(up + c, part)), out + c, part);
    });
  }
}

template <class T>
void swiglu_back(ConstView dy, ConstView gate_up, View dgate_up, std::int64_t begin, std::int64_t end) {
  const std::int64_t n = dy.cols;
  for (std::int64_t r = begin; r < end; ++r) {
    const T* gate = gate_up.row<T>(r);
    const T* grad = dy.row<T>(r);
    T* out = dgate_up.row<T>(r);
    for_vectors(n, [&](std::int64_t c, auto part) LODE_LAMBDA {
      const V g = load(gate + c, part), u = load(gate + n + c, part), d = load(grad + c, part);
      const V s = sigmoid(g);
      const V slope = hn::Mul(s, hn::MulAdd(g, hn::Sub(set(1.0f), s), set(1.0f)));
      store(hn::Mul(hn::Mul(d, u), slope), out + c, part);
      store(hn::Mul(d, hn::Mul(g, s)), out + n + c, part);
    });
  }
}

// (1 + tanh(z)) / 2 = sigmoid(2 z) with z = sqrt(2/pi) (x + 0.044715 x^3); `slope` is d(2 z)/dx. Both are
// constant in effect beyond |x| = 30, where x^3 could overflow.
struct TanhGate {
  V s, slope;
};
HWY_INLINE TanhGate tanh_gate(V x) {
  const V k = set(1.5957691216057308f);  // 2 sqrt(2/pi)
  const V near = hn::Min(hn::Max(x, set(-30.0f)), set(30.0f));
  const V square = hn::Mul(near, near);
  const V z = hn::Mul(hn::Mul(k, near), hn::MulAdd(square, set(0.044715f), set(1.0f)));
  return {sigmoid(z), hn::Mul(k, hn::MulAdd(square, set(3.0f * 0.044715f), set(1.0f)))};
}

template <class T, GeluKind kind>
void gelu(ConstView x, View y, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const T* in = x.row<T>(r);
    T* out = y.row<T>(r);
    for_vectors(x.cols, [&](std::int64_t c, auto part) LODE_LAMBDA {
      const V v = load(in + c, part);
      store(hn::Mul(v, kind == GeluKind::erf ? normal(v).cdf : tanh_gate(v).s), out + c, part);
    });
  }
}

template <class T, GeluKind kind>
void gelu_back(ConstView dy, ConstView x, View dx, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const T* in = x.row<T>(r);
    const T* grad = dy.row<T>(r);
    T* out = dx.row<T>(r);
    for_vectors(x.cols, [&](std::int64_t c, auto part) LODE_LAMBDA {
      const V v = load(in + c, part);
      V slope;
      if constexpr (kind == GeluKind::erf) {
        const Normal n = normal(v);
        slope = hn::MulAdd(v, hn::Mul(n.gauss, set(0.3989422804014327f)), n.cdf);
      } else {
        const TanhGate gate = tanh_gate(v);
        const V bump = hn::Mul(hn::Mul(gate.s, hn::Sub(set(1.0f), gate.s)), gate.slope);
        slope = hn::MulAdd(v, bump, gate.s);
      }
      store(hn::Mul(load(grad + c, part), slope), out + c, part);
    });
  }
}

void swiglu_rows(ConstView gate_up, View y, std::int64_t begin, std::int64_t end) {
  y.dtype == DType::bf16 ? swiglu<bf16>(gate_up, y, begin, end) : swiglu<float>(gate_up, y, begin, end);
}

void swiglu_back_rows(ConstView dy, ConstView gate_up, View dgate_up, std::int64_t begin, std::int64_t end) {
  dy.dtype == DType::bf16 ? swiglu_back<bf16>(dy, gate_up, dgate_up, begin, end)
                          : swiglu_back<float>(dy, gate_up, dgate_up, begin, end);
}

void gelu_rows(GeluKind kind, ConstView x, View y, std::int64_t begin, std::int64_t end) {
  const bool erf = kind == GeluKind::erf;
  if (x.dtype == DType::bf16) {
    erf ? gelu<bf16, GeluKind::erf>(x, y, begin, end) : gelu<bf16, GeluKind::tanh>(x, y, begin, end);
  } else {
    erf ? gelu<float, GeluKind::erf>(x, y, begin, end) : gelu<float, GeluKind::tanh>(x, y, begin, end);
  }
}

void gelu_back_rows(GeluKind kind, ConstView dy, ConstView x, View dx, std::int64_t begin, std::int64_t end) {
  const bool erf = kind == GeluKind::erf;
  if (x.dtype == DType::bf16) {
    erf ? gelu_back<bf16, GeluKind::erf>(dy, x, dx, begin, end)
        : gelu_back<bf16, GeluKind::tanh>(dy, x, dx, begin, end);
  } else {
    erf ? gelu_back<float, GeluKind::erf>(dy, x, dx, begin, end)
        : gelu_back<float, GeluKind::tanh>(dy, x, dx, begin, end);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lode
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lode {
namespace {

HWY_EXPORT(swiglu_rows);
HWY_EXPORT(swiglu_back_rows);
HWY_EXPORT(gelu_rows);
HWY_EXPORT(gelu_back_rows);

void swiglu_forward_cpu(KernelContext& context, ConstView gate_up, View y) {
  LODE_ASSERT(gate_up.cols == 2 * y.cols && gate_up.rows == y.rows);
  for_rows(context, y.rows, y.cols, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(swiglu_rows)(gate_up, y, begin, end);
  });
}

void swiglu_backward_cpu(KernelContext& context, ConstView dy, ConstView gate_up, View dgate_up) {
  LODE_ASSERT(gate_up.cols == 2 * dy.cols && dgate_up.cols == gate_up.cols && gate_up.rows == dy.rows);
  for_rows(context, dy.rows, dy.cols, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(swiglu_back_rows)(dy, gate_up, dgate_up, begin, end);
  });
}

void gelu_forward_cpu(KernelContext& context, GeluKind kind, ConstView x, View y) {
  for_rows(context, x.rows, x.cols, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(gelu_rows)(kind, x, y, begin, end);
  });
}

void gelu_backward_cpu(KernelContext& context, GeluKind kind, ConstView dy, ConstView x, View dx) {
  for_rows(context, x.rows, x.cols, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(gelu_back_rows)(kind, dy, x, dx, begin, end);
  });
}

const KernelEntry swiglu_forward_f32(swiglu_forward, DType::f32, swiglu_forward_cpu);
const KernelEntry swiglu_forward_bf16(swiglu_forward, DType::bf16, swiglu_forward_cpu);
const KernelEntry swiglu_backward_f32(swiglu_backward, DType::f32, swiglu_backward_cpu);
const KernelEntry swiglu_backward_bf16(swiglu_backward, DType::bf16, swiglu_backward_cpu);
const KernelEntry gelu_forward_f32(gelu_forward, DType::f32, gelu_forward_cpu);
const KernelEntry gelu_forward_bf16(gelu_forward, DType::bf16, gelu_forward_cpu);
const KernelEntry gelu_backward_f32(gelu_backward, DType::f32, gelu_backward_cpu);
const KernelEntry gelu_backward_bf16(gelu_backward, DType::bf16, gelu_backward_cpu);

}  // namespace
}  // namespace lode
#endif  // HWY_ONCE
