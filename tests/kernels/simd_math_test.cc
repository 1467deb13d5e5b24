// The error bounds stated in simd_math.h, measured over the whole range.
#include "kernels/kernel_test.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_math_test.cc"
#include "kernels/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace lode {
namespace HWY_NAMESPACE {
namespace {

void evaluate(int function, const float* x, float* y, std::int64_t n) {
  for_vectors(n, [&](std::int64_t i, auto part) LODE_LAMBDA {
    const V v = load(x + i, part);
    V result = exp(v);
    if (function == 1) result = sigmoid(v);
    if (function == 2) result = normal(v).cdf;
    if (function == 3) result = normal(v).gauss;
    if (function == 4) result = sigmoid_coarse(v);
    store(result, y + i, part);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lode
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lode {
HWY_EXPORT(evaluate);
namespace test {
namespace {

// Largest |got - want| / (|want| + floor) over [low, high].
template <class F>
double worst_error(int function, double low, double high, F want, double floor = 0.0) {
  constexpr int kPoints = 200001;
  std::vector<float> x, y(kPoints);
  for (int i = 0; i < kPoints; ++i) x.push_back(static_cast<float>(low + (high - low) * i / (kPoints - 1)));
  HWY_DYNAMIC_DISPATCH(evaluate)(function, x.data(), y.data(), kPoints);
  double worst = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double w = want(static_cast<double>(x[i]));
    worst = std::max(worst, std::abs(static_cast<double>(y[i]) - w) / (std::abs(w) + floor));
  }
  return worst;
}
float value(int function, float x) {
  float y = 0.0f;
  HWY_DYNAMIC_DISPATCH(evaluate)(function, &x, &y, 1);
  return y;
}

TEST(SimdMath, Exp) {
  for_each_target([] {
    EXPECT_LT(worst_error(0, -87.3, 88.7, [](double x) { return std::exp(x); }), 1.5e-7);
    EXPECT_LT(worst_error(0, -1.0, 1.0, [](double x) { return std::exp(x); }), 1.5e-7);
    EXPECT_EQ(value(0, 0.0f), 1.0f);
    EXPECT_EQ(value(0, -0.0f), 1.0f);
    EXPECT_EQ(value(0, 1e-30f), 1.0f);
    EXPECT_EQ(value(0, -87.4f), 0.0f);
    EXPECT_EQ(value(0, -INFINITY), 0.0f);
    EXPECT_EQ(value(0, -3e38f), 0.0f);
    EXPECT_EQ(value(0, 88.8f), INFINITY);
    EXPECT_EQ(value(0, 3e38f), INFINITY);
    EXPECT_EQ(value(0, INFINITY), INFINITY);
    EXPECT_TRUE(std::isnan(value(0, NAN)));
  });
}

TEST(SimdMath, Sigmoid) {
  for_each_target([] {
    EXPECT_LT(worst_error(1, -87.0, 87.0, [](double x) { return 1.0 / (1.0 + std::exp(-x)); }), 3e-7);
    EXPECT_EQ(value(1, -INFINITY), 0.0f);
    EXPECT_EQ(value(1, -1e4f), 0.0f);
    EXPECT_EQ(value(1, 1e4f), 1.0f);
    EXPECT_EQ(value(1, 0.0f), 0.5f);
    EXPECT_TRUE(std::isnan(value(1, NAN)));
  });
}

TEST(SimdMath, CoarseSigmoid) {
  for_each_target([] {
    const auto want = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
    EXPECT_LT(worst_error(4, -87.0, 88.0, want), 7e-5);
    EXPECT_EQ(value(4, -INFINITY), 0.0f);
    EXPECT_EQ(value(4, -1e4f), 0.0f);
    EXPECT_NEAR(value(4, 1e4f), 1.0f, 7e-5);
    EXPECT_TRUE(std::isnan(value(4, NAN)));
  });
}

TEST(SimdMath, Normal) {
  for_each_target([] {
    const auto cdf = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
    EXPECT_LT(worst_error(2, -5.0, 15.0, cdf), 1e-6);
    EXPECT_LT(worst_error(2, -13.0, -5.0, cdf), 6e-6);
    EXPECT_LT(worst_error(2, -40.0, 40.0, cdf, 1.0), 1.2e-7);
    EXPECT_LT(worst_error(3, -13.0, 13.0, [](double x) { return std::exp(-x * x / 2.0); }), 6e-6);
    EXPECT_EQ(value(2, INFINITY), 1.0f);
    EXPECT_EQ(value(2, -INFINITY), 0.0f);
    EXPECT_NEAR(value(2, 0.0f), 0.5, 1e-7);
    EXPECT_TRUE(std::isnan(value(2, NAN)));
  });
}

}  // namespace
}  // namespace test
}  // namespace lode
#endif  // HWY_ONCE
