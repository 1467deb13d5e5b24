#include "kernels/activation.h"

#include "kernels/kernel_test.h"

namespace lode::test {
namespace {

double silu(double g) {
  return g / (1.0 + std::exp(-g));
}
double gelu(GeluKind kind, double x) {
  if (kind == GeluKind::erf) return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

// Mostly normal values; every 11th is far out.
void fill_wide(Matrix& matrix, Rng& rng) {
  matrix.fill([&](std::int64_t r, std::int64_t c) {
    return rng.next_normal() * ((r * 31 + c) % 11 == 10 ? 12.0 : 1.5);
  });
}

// bf16 results use a sigmoid that is good to 7e-5 itself (simd_math.h).
Tolerance tolerance(DType dtype, double f32_error) {
  return tolerance_of(dtype, dtype == DType::bf16 ? 1e-4 : f32_error);
}

double act(GateKind kind, double x) {
  if (kind == GateKind::silu) return silu(x);
  return gelu(kind == GateKind::gelu_erf ? GeluKind::erf : GeluKind::tanh, x);
}

template <GateKind kind>
struct GatedForwardCase {
  Matrix gate_up, y;
  GatedForwardCase(const Make& m, Rng& rng)
      : gate_up(m.dtype, m.shape.rows, 2 * m.shape.cols, m.gap),
        y(m.dtype, m.shape.rows, m.shape.cols, m.gap) {
    fill_wide(gate_up, rng);
  }
  void run(KernelContext& context) { gated_forward(y.dtype(), context, kind, gate_up.view(), y.view()); }
  void check() const {
    expect_near(
        y, [&](auto r, auto c) { return act(kind, gate_up.at(r, c)) * gate_up.at(r, c + y.cols()); },
        tolerance(y.dtype(), 1e-6), "y");
  }
  std::vector<const Matrix*> outputs() const { return {&y}; }
};
TEST(Gated, Forward) {
  check_kernel<GatedForwardCase<GateKind::silu>>();
  check_kernel<GatedForwardCase<GateKind::gelu_erf>>();
  check_kernel<GatedForwardCase<GateKind::gelu_tanh>>();
}

template <GateKind kind>
struct GatedBackwardCase {
  Matrix dy, gate_up, dgate_up;
  GatedBackwardCase(const Make& m, Rng& rng)
      : dy(m.dtype, m.shape.rows, m.shape.cols, m.gap),
        gate_up(m.dtype, m.shape.rows, 2 * m.shape.cols, m.gap),
        dgate_up(gate_up) {
    fill_wide(gate_up, rng);
    dy.fill_normal(rng);
  }
  void run(KernelContext& context) {
    gated_backward(dy.dtype(), context, kind, dy.view(), gate_up.view(), dgate_up.view());
  }
  void check() const {
    const std::int64_t n = dy.cols();
    const auto want = [&](std::int64_t r, std::int64_t c) {
      const double d = dy.at(r, c % n), g = gate_up.at(r, c % n), u = gate_up.at(r, c % n + n);
      const auto f = [](double x) { return act(kind, x); };
      return c < n ? d * u * central_difference(f, g) : d * f(g);
    };
    expect_near(dgate_up, want, tolerance(dy.dtype(), 3e-6), "dgate_up");
  }
  std::vector<const Matrix*> outputs() const { return {&dgate_up}; }
};
TEST(Gated, BackwardEqualsDifferences) {
  check_kernel<GatedBackwardCase<GateKind::silu>>();
  check_kernel<GatedBackwardCase<GateKind::gelu_erf>>();
  check_kernel<GatedBackwardCase<GateKind::gelu_tanh>>();
}

template <GeluKind kind>
struct GeluForwardCase {
  Matrix x, y;
  GeluForwardCase(const Make& m, Rng& rng) : x(m.dtype, m.shape.rows, m.shape.cols, m.gap), y(x) {
    fill_wide(x, rng);
  }
  void run(KernelContext& context) { gelu_forward(x.dtype(), context, kind, x.view(), y.view()); }
  void check() const {
    expect_near(
        y, [&](auto r, auto c) { return gelu(kind, x.at(r, c)); }, tolerance(x.dtype(), 1e-6), "y");
  }
  std::vector<const Matrix*> outputs() const { return {&y}; }
};
TEST(Gelu, ErfForward) {
  check_kernel<GeluForwardCase<GeluKind::erf>>();
}
TEST(Gelu, TanhForward) {
  check_kernel<GeluForwardCase<GeluKind::tanh>>();
}

template <GeluKind kind>
struct GeluBackwardCase {
  Matrix dy, x, dx;
  GeluBackwardCase(const Make& m, Rng& rng) : dy(m.dtype, m.shape.rows, m.shape.cols, m.gap), x(dy), dx(dy) {
    fill_wide(x, rng);
    dy.fill_normal(rng);
  }
  void run(KernelContext& context) {
    gelu_backward(x.dtype(), context, kind, dy.view(), x.view(), dx.view());
  }
  void check() const {
    const auto slope = [](double at) {
      return central_difference([](double v) { return gelu(kind, v); }, at);
    };
    expect_near(
        dx, [&](auto r, auto c) { return dy.at(r, c) * slope(x.at(r, c)); }, tolerance(x.dtype(), 3e-6),
        "dx");
  }
  std::vector<const Matrix*> outputs() const { return {&dx}; }
};
TEST(Gelu, ErfBackwardEqualsDifferences) {
  check_kernel<GeluBackwardCase<GeluKind::erf>>();
}
TEST(Gelu, TanhBackwardEqualsDifferences) {
  check_kernel<GeluBackwardCase<GeluKind::tanh>>();
}

TEST(Activation, BackwardInPlaceOfAnInput) {
  for_each_target([] {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Rng rng(3, "in place");
      Matrix dy(dtype, 5, 67), x(dy), dx(dy), gate_up(dtype, 5, 134), dgate_up(gate_up);
      dy.fill_normal(rng);
      fill_wide(x, rng);
      fill_wide(gate_up, rng);
      TestContext context;
      gated_backward(dtype, *context, GateKind::silu, dy.view(), gate_up.view(), dgate_up.view());
      gated_backward(dtype, *context, GateKind::silu, dy.view(), gate_up.view(), gate_up.view());
      EXPECT_TRUE(gate_up.same_bits(dgate_up));
      gelu_backward(dtype, *context, GeluKind::erf, dy.view(), x.view(), dx.view());
      gelu_backward(dtype, *context, GeluKind::erf, dy.view(), x.view(), dy.view());
      EXPECT_TRUE(dy.same_bits(dx));
    }
  });
}

TEST(Activation, HostileValues) {
  for_each_target([] {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const std::vector<double> values = {0.0, -0.0, 1e4, -1e4, 3e38, -3e38, INFINITY, NAN};
      const auto n = static_cast<std::int64_t>(values.size());
      Matrix x(dtype, 1, n), y(x), dy(x), dx(x), gate_up(dtype, 1, 2 * n), dgate_up(gate_up);
      x.fill([&](auto, auto c) { return values[static_cast<std::size_t>(c)]; });
      gate_up.fill([&](auto, auto c) { return c < n ? values[static_cast<std::size_t>(c)] : 1.0; });
      dy.fill([](auto, auto) { return 1.0; });
      // Large positive values pass, large negative ones become 0, NaN stays NaN.
      const auto passed = [&](auto, std::int64_t c) { return x.at(0, c) < 0.0 ? 0.0 : x.at(0, c); };
      const auto slope = [&](std::int64_t c, double at_zero) {
        return x.at(0, c) == 0.0 ? at_zero : x.at(0, c) < 0.0 ? 0.0 : x.at(0, c) > 0.0 ? 1.0 : NAN;
      };
      TestContext context;
      for (const GeluKind kind : {GeluKind::erf, GeluKind::tanh}) {
        gelu_forward(dtype, *context, kind, x.view(), y.view());
        expect_near(y, passed, {1e-30, 0}, "gelu");
        gelu_backward(dtype, *context, kind, dy.view(), x.view(), dx.view());
        dx.set(0, 6, 1.0);  // infinity * 0 may be NaN
        expect_near(
            dx, [&](auto, auto c) { return slope(c, 0.5); }, {1e-6, 0}, "gelu gradient");
      }
      for (const GateKind kind : {GateKind::silu, GateKind::gelu_erf, GateKind::gelu_tanh}) {
        gated_forward(dtype, *context, kind, gate_up.view(), y.view());
        expect_near(y, passed, {1e-30, 0}, "gated");
        gated_backward(dtype, *context, kind, dy.view(), gate_up.view(), dgate_up.view());
        dgate_up.set(0, 6, 1.0);
        expect_near(
            dgate_up, [&](auto, auto c) { return c < n ? slope(c, 0.5) : passed(0, c - n); }, {1e-6, 0},
            "gated gradient");
      }
    }
  });
}

}  // namespace
}  // namespace lode::test
