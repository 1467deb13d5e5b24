#include "kernels/activation.h"

#include <type_traits>

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
HWY_INLINE V sigmoid_for(V x) {
  if constexpr (std::is_same_v<T, float>) return sigmoid(x);
  return sigmoid_coarse(x);
}

// (1 + tanh(z)) / 2 = sigmoid(2 z) with z = sqrt(2/pi) (x + 0.044715 x^3); `slope` is d(2 z)/dx. Both are
// constant in effect beyond |x| = 30, where x^3 could overflow.
struct TanhGate {
  V s, slope;
};
template <class T>
HWY_INLINE TanhGate tanh_gate(V x) {
  const V k = set(1.5957691216057308f);  // 2 sqrt(2/pi)
  const V near = hn::Min(hn::Max(x, set(-30.0f)), set(30.0f));
  const V square = hn::Mul(near, near);
  const V z = hn::Mul(hn::Mul(k, near), hn::MulAdd(square, set(0.044715f), set(1.0f)));
  return {sigmoid_for<T>(z), hn::Mul(k, hn::MulAdd(square, set(3.0f * 0.044715f), set(1.0f)))};
}

// act(x) = x * gate, and its derivative, for results that are stored as T.
struct Act {
  V gate, slope;
};
template <class T, GateKind kind>
HWY_INLINE V act_gate(V x) {
  if constexpr (kind == GateKind::silu) return sigmoid_for<T>(x);
  if constexpr (kind == GateKind::gelu_erf) return normal(x).cdf;
  return tanh_gate<T>(x).s;
}
template <class T, GateKind kind>
HWY_INLINE Act act(V x) {
  if constexpr (kind == GateKind::silu) {
    const V s = sigmoid_for<T>(x);
    return {s, hn::Mul(s, hn::MulAdd(x, hn::Sub(set(1.0f), s), set(1.0f)))};
  } else if constexpr (kind == GateKind::gelu_erf) {
    const Normal n = normal(x);
    return {n.cdf, hn::MulAdd(x, hn::Mul(n.gauss, set(0.3989422804014327f)), n.cdf)};
  } else {
    const TanhGate gate = tanh_gate<T>(x);
    const V bump = hn::Mul(hn::Mul(gate.s, hn::Sub(set(1.0f), gate.s)), gate.slope);
    return {gate.s, hn::MulAdd(x, bump, gate.s)};
  }
}

// Values by which a pass asks for its operands ahead: it waits for several streams, and the arithmetic
// between two loads of one leaves too few of them in flight. Beyond the end of a matrix nothing is read.
constexpr std::int64_t kAhead = 512;

template <class T, GateKind kind>
void gated(ConstView gate_up, View y, std::int64_t begin, std::int64_t end) {
  const std::int64_t n = y.cols;
  for (std::int64_t r = begin; r < end; ++r) {
    const T* gate = gate_up.row<T>(r);
    const T* up = gate + n;
    T* out = y.row<T>(r);
    for_vectors(n, [&](std::int64_t c, auto part) LODE_LAMBDA {
      __builtin_prefetch(gate + c + kAhead);
      __builtin_prefetch(up + c + kAhead);
      const V g = load(gate + c, part);
      store(hn::Mul(hn::Mul(g, act_gate<T, kind>(g)), load(up + c, part)), out + c, part);
    });
  }
}

template <class T, GateKind kind>
void gated_back(ConstView dy, ConstView gate_up, View dgate_up, std::int64_t begin, std::int64_t end) {
  const std::int64_t n = dy.cols;
  for (std::int64_t r = begin; r < end; ++r) {
    const T* gate = gate_up.row<T>(r);
    const T* grad = dy.row<T>(r);
    T* out = dgate_up.row<T>(r);
    for_vectors(n, [&](std::int64_t c, auto part) LODE_LAMBDA {
      __builtin_prefetch(gate + c + kAhead);
      __builtin_prefetch(gate + n + c + kAhead);
      __builtin_prefetch(grad + c + kAhead);
      const V g = load(gate + c, part), u = load(gate + n + c, part), d = load(grad + c, part);
      const Act a = act<T, kind>(g);
      store(hn::Mul(hn::Mul(d, u), a.slope), out + c, part);
      store(hn::Mul(d, hn::Mul(g, a.gate)), out + n + c, part);
    });
  }
}

template <class T, GateKind kind>
void plain(ConstView x, View y, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const T* in = x.row<T>(r);
    T* out = y.row<T>(r);
    for_vectors(x.cols, [&](std::int64_t c, auto part) LODE_LAMBDA {
      __builtin_prefetch(in + c + kAhead);
      const V v = load(in + c, part);
      store(hn::Mul(v, act_gate<T, kind>(v)), out + c, part);
    });
  }
}

template <class T, GateKind kind>
void plain_back(ConstView dy, ConstView x, View dx, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const T* in = x.row<T>(r);
    const T* grad = dy.row<T>(r);
    T* out = dx.row<T>(r);
    for_vectors(x.cols, [&](std::int64_t c, auto part) LODE_LAMBDA {
      __builtin_prefetch(in + c + kAhead);
      __builtin_prefetch(grad + c + kAhead);
      store(hn::Mul(load(grad + c, part), act<T, kind>(load(in + c, part)).slope), out + c, part);
    });
  }
}

// Calls body(T, kind) with a value of the type and the kind as a constant.
template <class Body>
HWY_INLINE void for_kind(DType dtype, GateKind kind, const Body& body) {
  const auto with_type = [&](auto type) {
    switch (kind) {
      case GateKind::silu:
        return body(type, std::integral_constant<GateKind, GateKind::silu>());
      case GateKind::gelu_erf:
        return body(type, std::integral_constant<GateKind, GateKind::gelu_erf>());
      case GateKind::gelu_tanh:
        return body(type, std::integral_constant<GateKind, GateKind::gelu_tanh>());
    }
  };
  for_type(dtype, with_type);
}

void gated_rows(GateKind kind, ConstView gate_up, View y, std::int64_t begin, std::int64_t end) {
  for_kind(y.dtype, kind,
           [&](auto type, auto k) { gated<decltype(type), decltype(k)::value>(gate_up, y, begin, end); });
}

void gated_back_rows(GateKind kind, ConstView dy, ConstView gate_up, View dgate_up, std::int64_t begin,
                     std::int64_t end) {
  for_kind(dy.dtype, kind, [&](auto type, auto k) {
    gated_back<decltype(type), decltype(k)::value>(dy, gate_up, dgate_up, begin, end);
  });
}

GateKind gate_kind(GeluKind kind) {
  return kind == GeluKind::erf ? GateKind::gelu_erf : GateKind::gelu_tanh;
}

void gelu_rows(GeluKind kind, ConstView x, View y, std::int64_t begin, std::int64_t end) {
  for_kind(x.dtype, gate_kind(kind),
           [&](auto type, auto k) { plain<decltype(type), decltype(k)::value>(x, y, begin, end); });
}

void gelu_back_rows(GeluKind kind, ConstView dy, ConstView x, View dx, std::int64_t begin, std::int64_t end) {
  for_kind(x.dtype, gate_kind(kind),
           [&](auto type, auto k) { plain_back<decltype(type), decltype(k)::value>(dy, x, dx, begin, end); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lode
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lode {
namespace {

HWY_EXPORT(gated_rows);
HWY_EXPORT(gated_back_rows);
HWY_EXPORT(gelu_rows);
HWY_EXPORT(gelu_back_rows);

void gated_forward_cpu(KernelContext& context, GateKind kind, ConstView gate_up, View y) {
  LODE_ASSERT(gate_up.cols == 2 * y.cols && gate_up.rows == y.rows);
  for_rows(context, y.rows, y.cols, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(gated_rows)(kind, gate_up, y, begin, end);
  });
}

void gated_backward_cpu(KernelContext& context, GateKind kind, ConstView dy, ConstView gate_up,
                        View dgate_up) {
  LODE_ASSERT(gate_up.cols == 2 * dy.cols && dgate_up.cols == gate_up.cols && gate_up.rows == dy.rows);
  for_rows(context, dy.rows, dy.cols, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(gated_back_rows)(kind, dy, gate_up, dgate_up, begin, end);
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

const KernelEntry gated_forward_f32(gated_forward, DType::f32, gated_forward_cpu);
const KernelEntry gated_forward_bf16(gated_forward, DType::bf16, gated_forward_cpu);
const KernelEntry gated_backward_f32(gated_backward, DType::f32, gated_backward_cpu);
const KernelEntry gated_backward_bf16(gated_backward, DType::bf16, gated_backward_cpu);
const KernelEntry gelu_forward_f32(gelu_forward, DType::f32, gelu_forward_cpu);
const KernelEntry gelu_forward_bf16(gelu_forward, DType::bf16, gelu_forward_cpu);
const KernelEntry gelu_backward_f32(gelu_backward, DType::f32, gelu_backward_cpu);
const KernelEntry gelu_backward_bf16(gelu_backward, DType::bf16, gelu_backward_cpu);

}  // namespace
}  // namespace lode
#endif  // HWY_ONCE
