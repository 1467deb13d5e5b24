#include "kernels/optimizer.h"

#include "kernels/kernel_test.h"

namespace lode::test {
namespace {

template <bool with_copy>
struct AdamWCase {
  static constexpr int kSteps = 3;
  static constexpr double kLr = 0.01, kB1 = 0.9, kB2 = 0.99, kEps = 1e-8, kDecay = 0.1, kScale = 0.5;
  Matrix weight, grad, exp_avg, exp_avg_sq, copy, weight_before;
  AdamWCase(const Make& m, Rng& rng)
      : weight(DType::f32, m.shape.rows, m.shape.cols, m.gap),
        grad(weight),
        exp_avg(weight),
        exp_avg_sq(weight),
        copy(DType::bf16, m.shape.rows, m.shape.cols, m.gap) {
    weight.fill_normal(rng);
    grad.fill_normal(rng);
    exp_avg.fill([](auto, auto) { return 0.0; });
    exp_avg_sq.fill([](auto, auto) { return 0.0; });
    weight_before = weight;
  }
  void run(KernelContext& context) {
    for (int t = 1; t <= kSteps; ++t) {
      AdamWStep step{weight.view(), grad.view(), exp_avg.view(), exp_avg_sq.view(), {}};
      if (with_copy) step.copy = copy.view();
      step.lr = kLr;
      step.beta1 = kB1;
      step.beta2 = kB2;
      step.eps = kEps;
      step.weight_decay = kDecay;
      step.bias_correction1 = 1.0 - std::pow(kB1, t);
      step.bias_correction2 = 1.0 - std::pow(kB2, t);
      step.grad_scale = kScale;
      adamw_step(context, step);
    }
  }
  void check() const {
    const auto want = [&](std::int64_t r, std::int64_t c) {
      double w = weight_before.at(r, c), m = 0.0, v = 0.0;
      const double g = kScale * grad.at(r, c);
      for (int t = 1; t <= kSteps; ++t) {
        w *= 1.0 - kLr * kDecay;
        m = kB1 * m + (1.0 - kB1) * g;
        v = kB2 * v + (1.0 - kB2) * g * g;
        w -= kLr / (1.0 - std::pow(kB1, t)) * m / (std::sqrt(v) / std::sqrt(1.0 - std::pow(kB2, t)) + kEps);
      }
      return w;
    };
    expect_near(weight, want, {1e-7, 4e-7}, "weight");
    if (with_copy) {
      expect_near(
          copy, [&](auto r, auto c) { return rounded(DType::bf16, weight.at(r, c)); }, {0, 0}, "copy");
    }
  }
  std::vector<const Matrix*> outputs() const { return {&weight, &exp_avg, &exp_avg_sq, &copy}; }
};

TEST(AdamW, Step) {
  check_kernel<AdamWCase<false>>(odd_shapes(), {DType::f32});
}
TEST(AdamW, StepWithCopy) {
  check_kernel<AdamWCase<true>>(odd_shapes(), {DType::f32});
}

// Without decay and eps the first step is lr in the direction of the gradient's sign, whatever its size.
TEST(AdamW, FirstStepIsTheLearningRate) {
  for_each_target([] {
    Matrix weight(DType::f32, 1, 37), grad(weight), exp_avg(weight), exp_avg_sq(weight);
    weight.fill([](auto, auto) { return 0.0; });
    exp_avg.fill([](auto, auto) { return 0.0; });
    exp_avg_sq.fill([](auto, auto) { return 0.0; });
    grad.fill([](auto, auto c) {
      return (c % 2 == 0 ? 1.0 : -1.0) * std::pow(10.0, static_cast<double>(c % 16) - 8.0);
    });
    adamw_step(*TestContext(), {weight.view(),
                                grad.view(),
                                exp_avg.view(),
                                exp_avg_sq.view(),
                                {},
                                0.25,
                                0.9,
                                0.999,
                                0.0,
                                0.0,
                                1.0 - 0.9,
                                1.0 - 0.999,
                                1.0});
    expect_near(
        weight, [](auto, auto c) { return c % 2 == 0 ? -0.25 : 0.25; }, {0, 1e-6}, "weight");
  });
}

}  // namespace
}  // namespace lode::test
