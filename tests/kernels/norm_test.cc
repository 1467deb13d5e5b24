#include "kernels/norm.h"

#include "kernels/kernel_test.h"

namespace lode::test {
namespace {

constexpr float kEps = 1e-5f;

struct Statistics {
  double mean = 0.0, rstd = 0.0;
};
template <class Row>
Statistics statistics(NormKind kind, std::int64_t d, Row h) {
  Statistics s;
  double squares = 0.0;
  if (kind == NormKind::layer) {
    for (std::int64_t c = 0; c < d; ++c) s.mean += h(c) / static_cast<double>(d);
  }
  for (std::int64_t c = 0; c < d; ++c) squares += (h(c) - s.mean) * (h(c) - s.mean);
  s.rstd = 1.0 / std::sqrt(squares / static_cast<double>(d) + static_cast<double>(kEps));
  return s;
}

template <NormKind kind, bool with_delta, bool with_bias, bool in_place = false>
struct ForwardCase {
  Matrix x, delta, weight, bias, h, y, rstd, mean, x_before;

  ForwardCase(const Make& m, Rng& rng)
      : x(m.dtype, m.shape.rows, m.shape.cols, m.gap),
        delta(x),
        weight(DType::f32, 1, m.shape.cols),
        bias(weight),
        h(x),
        y(x),
        rstd(DType::f32, 1, m.shape.rows),
        mean(rstd) {
    x.fill_normal(rng, 0.5);
    delta.fill_normal(rng);
    weight.fill_normal(rng, 1.0, 0.3);
    bias.fill_normal(rng);
    x_before = x;
  }
  void run(KernelContext& context) {
    norm_forward(x.dtype(), context,
                 {kind, kEps, x.view(), with_delta ? ConstView(delta.view()) : ConstView(), weight.view(),
                  with_bias ? ConstView(bias.view()) : ConstView(), in_place ? x.view() : h.view(), y.view(),
                  rstd.view(), kind == NormKind::layer ? mean.view() : View()});
  }
  double normed(std::int64_t r, std::int64_t c) const {
    return rounded(x.dtype(), x_before.at(r, c) + (with_delta ? delta.at(r, c) : 0.0));
  }
  void check() const {
    std::vector<Statistics> s;
    for (std::int64_t r = 0; r < x.rows(); ++r) {
      s.push_back(statistics(kind, x.cols(), [&](std::int64_t c) { return normed(r, c); }));
    }
    const auto of = [&](std::int64_t r) { return s[static_cast<std::size_t>(r)]; };
    if (with_delta) {
      expect_near(
          in_place ? x : h, [&](auto r, auto c) { return normed(r, c); }, {0, 0}, "h");
    }
    expect_near(
        y,
        [&](auto r, auto c) {
          return (normed(r, c) - of(r).mean) * of(r).rstd * weight.at(0, c) +
                 (with_bias ? bias.at(0, c) : 0.0);
        },
        tolerance_of(x.dtype(), 2e-5), "y");
    expect_near(
        rstd, [&](auto, auto r) { return of(r).rstd; }, tolerance_of(DType::f32, 1e-5), "rstd");
    if (kind == NormKind::layer) {
      expect_near(
          mean, [&](auto, auto r) { return of(r).mean; }, tolerance_of(DType::f32), "mean");
    }
  }
  std::vector<const Matrix*> outputs() const { return {&x, &h, &y, &rstd, &mean}; }
};

TEST(Norm, RmsForward) {
  check_kernel<ForwardCase<NormKind::rms, false, false>>();
}
TEST(Norm, RmsForwardAddsDelta) {
  check_kernel<ForwardCase<NormKind::rms, true, false>>();
}
TEST(Norm, RmsForwardWritesSumOverX) {
  check_kernel<ForwardCase<NormKind::rms, true, false, true>>();
}
TEST(Norm, LayerForward) {
  check_kernel<ForwardCase<NormKind::layer, false, true>>();
}
TEST(Norm, LayerForwardWithoutBias) {
  check_kernel<ForwardCase<NormKind::layer, true, false>>();
}
TEST(Norm, LayerForwardAddsDelta) {
  check_kernel<ForwardCase<NormKind::layer, true, true>>();
}

enum class Into { own, dy, dh };

template <NormKind kind, bool with_dh, bool with_dbias, Into into = Into::own, bool with_dweight = true>
struct BackwardCase {
  Matrix dy, h, weight, rstd, mean, dh, dx, dweight, dbias;
  Matrix dy_before, dh_before, dweight_before, dbias_before;

  BackwardCase(const Make& m, Rng& rng)
      : dy(m.dtype, m.shape.rows, m.shape.cols, m.gap),
        h(dy),
        weight(DType::f32, 1, m.shape.cols),
        rstd(DType::f32, 1, m.shape.rows),
        mean(rstd),
        dh(dy),
        dx(dy),
        dweight(weight),
        dbias(weight) {
    for (Matrix* matrix : {&dy, &h, &dh, &weight, &dweight, &dbias}) matrix->fill_normal(rng, 0.2);
    for (std::int64_t r = 0; r < m.shape.rows; ++r) {
      const Statistics s = statistics(kind, m.shape.cols, [&](std::int64_t c) { return h.at(r, c); });
      rstd.set(0, r, s.rstd);
      mean.set(0, r, s.mean);
    }
    dy_before = dy;
    dh_before = dh;
    dweight_before = dweight;
    dbias_before = dbias;
  }
  Matrix& target() { return into == Into::own ? dx : into == Into::dy ? dy : dh; }
  void run(KernelContext& context) {
    norm_backward(h.dtype(), context,
                  {kind, dy.view(), h.view(), weight.view(), rstd.view(), mean.view(),
                   with_dh ? ConstView(dh.view()) : ConstView(), target().view(),
                   with_dweight ? dweight.view() : View(), with_dbias ? dbias.view() : View()});
  }
  double normed(std::int64_t r, std::int64_t c) const { return (h.at(r, c) - mean.at(0, r)) * rstd.at(0, r); }
  void check() {
    const std::int64_t rows = h.rows(), d = h.cols();
    Matrix want(DType::f32, rows, d);
    std::vector<double> want_dweight(static_cast<std::size_t>(d)), want_dbias(want_dweight);
    for (std::int64_t r = 0; r < rows; ++r) {
      double mean_g = 0.0, mean_gn = 0.0;
      for (std::int64_t c = 0; c < d; ++c) {
        const double g = dy_before.at(r, c) * weight.at(0, c) / static_cast<double>(d);
        mean_g += kind == NormKind::layer ? g : 0.0;
        mean_gn += g * normed(r, c);
        want_dweight[static_cast<std::size_t>(c)] += dy_before.at(r, c) * normed(r, c);
        want_dbias[static_cast<std::size_t>(c)] += dy_before.at(r, c);
      }
      for (std::int64_t c = 0; c < d; ++c) {
        const double g = dy_before.at(r, c) * weight.at(0, c);
        want.set(
            r, c,
            rstd.at(0, r) * (g - mean_g - normed(r, c) * mean_gn) + (with_dh ? dh_before.at(r, c) : 0.0));
      }
    }
    // A row of one or two channels has a variance near 0, where rstd is up to 1 / sqrt(eps).
    expect_near(
        target(), [&](auto r, auto c) { return want.at(r, c); }, tolerance_of(h.dtype(), d < 4 ? 3e-4 : 2e-5),
        "dx");
    const auto plus = [](const Matrix& before, const std::vector<double>& sum) {
      return [&before, &sum](auto, auto c) { return before.at(0, c) + sum[static_cast<std::size_t>(c)]; };
    };
    if (with_dweight) expect_near(dweight, plus(dweight_before, want_dweight), {1e-4, 1e-5}, "dweight");
    if (with_dbias) expect_near(dbias, plus(dbias_before, want_dbias), {1e-4, 1e-5}, "dbias");
  }
  std::vector<const Matrix*> outputs() const { return {&dx, &dy, &dh, &dweight, &dbias}; }
};

TEST(Norm, RmsBackward) {
  check_kernel<BackwardCase<NormKind::rms, false, false>>();
}
TEST(Norm, RmsBackwardAddsDh) {
  check_kernel<BackwardCase<NormKind::rms, true, false>>();
}
TEST(Norm, RmsBackwardIntoDy) {
  check_kernel<BackwardCase<NormKind::rms, true, false, Into::dy>>();
}
TEST(Norm, RmsBackwardIntoDh) {
  check_kernel<BackwardCase<NormKind::rms, true, false, Into::dh>>();
}
TEST(Norm, RmsBackwardOfFrozenWeight) {
  check_kernel<BackwardCase<NormKind::rms, true, false, Into::own, false>>();
}
TEST(Norm, LayerBackward) {
  check_kernel<BackwardCase<NormKind::layer, false, true>>();
}
TEST(Norm, LayerBackwardWithoutBias) {
  check_kernel<BackwardCase<NormKind::layer, true, false>>();
}
TEST(Norm, LayerBackwardIntoDh) {
  check_kernel<BackwardCase<NormKind::layer, true, true, Into::dh>>();
}

// The kernel's gradient against differences of the forward's formula in double precision.
void check_differences(NormKind kind) {
  constexpr std::int64_t kD = 17;
  Rng rng(3, "norm_differences");
  Matrix h(DType::f32, 1, kD), weight(h), dy(h), dx(h), dweight(h), rstd(DType::f32, 1, 1), mean(rstd);
  for (Matrix* matrix : {&h, &weight, &dy}) matrix->fill_normal(rng, 0.4);
  dweight.fill([](auto, auto) { return 0.0; });
  std::vector<double> x, w;
  for (std::int64_t c = 0; c < kD; ++c) {
    x.push_back(h.at(0, c));
    w.push_back(weight.at(0, c));
  }
  const auto loss = [&] {
    const Statistics s = statistics(kind, kD, [&](std::int64_t c) { return x[static_cast<std::size_t>(c)]; });
    double sum = 0.0;
    for (std::size_t c = 0; c < x.size(); ++c) {
      sum += dy.at(0, static_cast<std::int64_t>(c)) * (x[c] - s.mean) * s.rstd * w[c];
    }
    return sum;
  };
  const Statistics s = statistics(kind, kD, [&](std::int64_t c) { return h.at(0, c); });
  rstd.set(0, 0, s.rstd);
  mean.set(0, 0, s.mean);
  norm_backward(DType::f32, *TestContext(),
                {kind,
                 dy.view(),
                 h.view(),
                 weight.view(),
                 rstd.view(),
                 mean.view(),
                 {},
                 dx.view(),
                 dweight.view(),
                 {}});
  const auto difference = [&](std::vector<double>& values, std::int64_t c) {
    double& value = values[static_cast<std::size_t>(c)];
    const double before = value;
    const double slope = central_difference([&](double v) { return value = v, loss(); }, before);
    value = before;
    return slope;
  };
  expect_near(
      dx, [&](auto, auto c) { return difference(x, c); }, {1e-6, 1e-5}, "dx");
  expect_near(
      dweight, [&](auto, auto c) { return difference(w, c); }, {1e-6, 1e-5}, "dweight");
}

TEST(Norm, RmsGradientEqualsDifferences) {
  for_each_target([] { check_differences(NormKind::rms); });
}
TEST(Norm, LayerGradientEqualsDifferences) {
  for_each_target([] { check_differences(NormKind::layer); });
}

TEST(Norm, NanStaysInItsRow) {
  for_each_target([] {
    Rng rng(1, "norm_nan");
    Matrix x(DType::bf16, 3, 65), y(x), weight(DType::f32, 1, 65), rstd(DType::f32, 1, 3);
    x.fill_normal(rng);
    weight.fill([](auto, auto) { return 1.0; });
    x.set(1, 40, NAN);
    norm_forward(DType::bf16, *TestContext(),
                 {NormKind::rms, kEps, x.view(), {}, weight.view(), {}, {}, y.view(), rstd.view(), {}});
    for (std::int64_t c = 0; c < 65; ++c) {
      EXPECT_TRUE(std::isfinite(y.at(0, c)) && std::isfinite(y.at(2, c)));
      EXPECT_TRUE(std::isnan(y.at(1, c)));
    }
  });
}

TEST(Norm, RowsOfZerosGiveZeros) {
  for_each_target([] {
    for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
      Matrix x(DType::f32, 2, 33), y(x), weight(DType::f32, 1, 33), rstd(DType::f32, 1, 2), mean(rstd);
      x.fill([](auto, auto) { return 0.0; });
      weight.fill([](auto, auto) { return 2.0; });
      norm_forward(DType::f32, *TestContext(),
                   {kind, kEps, x.view(), {}, weight.view(), {}, {}, y.view(), rstd.view(), mean.view()});
      expect_near(
          y, [](auto, auto) { return 0.0; }, {0, 0}, "y");
    }
  });
}

// Heads of a fused projection: groups of a row, each normalised by itself, with a weight centred on zero.
struct GroupedCase {
  static constexpr std::int64_t kGroups = 3;
  static constexpr float kOffset = 1;
  std::int64_t d;
  Matrix x, weight, y, rstd, dy, dx, dweight, dweight_before;

  GroupedCase(const Make& m, Rng& rng)
      : d(m.shape.cols),
        x(m.dtype, m.shape.rows, kGroups * d, m.gap),
        weight(DType::f32, 1, d),
        y(x),
        rstd(DType::f32, 1, m.shape.rows * kGroups),
        dy(x),
        dx(x),
        dweight(weight) {
    for (Matrix* matrix : {&x, &dy, &weight, &dweight}) matrix->fill_normal(rng, 0.3);
    dweight_before = dweight;
  }
  void run(KernelContext& context) {
    norm_forward(x.dtype(), context,
                 {.kind = NormKind::rms,
                  .eps = kEps,
                  .x = x.view(),
                  .weight = weight.view(),
                  .y = y.view(),
                  .rstd = rstd.view(),
                  .offset = kOffset,
                  .groups = kGroups});
    norm_backward(x.dtype(), context,
                  {.kind = NormKind::rms,
                   .dy = dy.view(),
                   .h = x.view(),
                   .weight = weight.view(),
                   .rstd = rstd.view(),
                   .dx = dx.view(),
                   .dweight = dweight.view(),
                   .offset = kOffset,
                   .groups = kGroups});
  }
  void check() const {
    std::vector<double> sums(static_cast<std::size_t>(d));
    Matrix want_y(DType::f32, x.rows(), x.cols()), want_dx(want_y);
    for (std::int64_t r = 0; r < x.rows(); ++r) {
      for (std::int64_t at = 0; at < x.cols(); at += d) {
        const double s = statistics(NormKind::rms, d, [&](std::int64_t c) { return x.at(r, at + c); }).rstd;
        double mean = 0;
        const auto g = [&](std::int64_t c) { return dy.at(r, at + c) * (kOffset + weight.at(0, c)); };
        for (std::int64_t c = 0; c < d; ++c) mean += g(c) * x.at(r, at + c) * s / static_cast<double>(d);
        for (std::int64_t c = 0; c < d; ++c) {
          const double n = x.at(r, at + c) * s;
          want_y.set(r, at + c, n * (kOffset + weight.at(0, c)));
          want_dx.set(r, at + c, s * (g(c) - n * mean));
          sums[static_cast<std::size_t>(c)] += dy.at(r, at + c) * n;
        }
      }
    }
    // A lone value's gradient is the small rest of two numbers that cancel.
    const Tolerance tolerance = tolerance_of(x.dtype(), d == 1 ? 1e-3 : 3e-5);
    expect_near(
        y, [&](auto r, auto c) { return want_y.at(r, c); }, tolerance_of(x.dtype(), 2e-5), "y");
    expect_near(
        dx, [&](auto r, auto c) { return want_dx.at(r, c); }, tolerance, "dx");
    expect_near(
        dweight, [&](auto, auto c) { return dweight_before.at(0, c) + sums[static_cast<std::size_t>(c)]; },
        {1e-4, 1e-5}, "dweight");
  }
  std::vector<const Matrix*> outputs() const { return {&y, &rstd, &dx, &dweight}; }
};
TEST(Norm, GroupsWithAnOffset) {
  check_kernel<GroupedCase>();
}

}  // namespace
}  // namespace lode::test
