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
      AdamWStep step{weight.view(), grad.view(), exp_avg.view(), exp_avg_sq.view()};
      if (with_copy) step.weight.copy = copy.view();
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
    adamw_step(*TestContext(), {weight.view(), grad.view(), exp_avg.view(), exp_avg_sq.view(), 0.25, 0.9,
                                0.999, 0.0, 0.0, 1.0 - 0.9, 1.0 - 0.999, 1.0});
    expect_near(
        weight, [](auto, auto c) { return c % 2 == 0 ? -0.25 : 0.25; }, {0, 1e-6}, "weight");
  });
}

// Two matrices of state at most, one step from random values.
struct StepCase {
  static constexpr double kLr = 0.05, kDecay = 0.1, kScale = 0.5;
  Matrix weight, grad, first, second, copy, weight_before, first_before, second_before;
  StepCase(const Make& m, Rng& rng)
      : weight(DType::f32, m.shape.rows, m.shape.cols, m.gap),
        grad(weight),
        first(weight),
        second(weight),
        copy(DType::bf16, m.shape.rows, m.shape.cols, m.gap) {
    weight.fill_normal(rng);
    grad.fill_normal(rng);
    first.fill_normal(rng);
    second.fill([&](auto, auto) { return std::abs(rng.next_normal()); });
    weight_before = weight;
    first_before = first;
    second_before = second;
  }
  double g(std::int64_t r, std::int64_t c) const { return kScale * grad.at(r, c); }
  void check_copy() const {
    expect_near(
        copy, [&](auto r, auto c) { return rounded(DType::bf16, weight.at(r, c)); }, {0, 0}, "copy");
  }
  std::vector<const Matrix*> outputs() const { return {&weight, &first, &second, &copy}; }
};

template <bool is_first, bool nesterov>
struct SgdCase : StepCase {
  using StepCase::StepCase;
  void run(KernelContext& context) {
    sgd_step(context, {.weight = {weight.view(), copy.view()},
                       .grad = grad.view(),
                       .momentum_buffer = first.view(),
                       .lr = kLr,
                       .momentum = 0.9,
                       .dampening = 0.2,
                       .weight_decay = kDecay,
                       .nesterov = nesterov,
                       .first = is_first,
                       .grad_scale = kScale});
  }
  void check() const {
    const auto decayed = [&](auto r, auto c) { return g(r, c) + kDecay * weight_before.at(r, c); };
    const auto buffer = [&](auto r, auto c) {
      return is_first ? decayed(r, c) : 0.9 * first_before.at(r, c) + 0.8 * decayed(r, c);
    };
    expect_near(first, buffer, {4e-7, 4e-7}, "buffer");  // sums of terms near 1
    expect_near(
        weight,
        [&](auto r, auto c) {
          const double step = nesterov ? decayed(r, c) + 0.9 * buffer(r, c) : buffer(r, c);
          return weight_before.at(r, c) - kLr * step;
        },
        {4e-7, 4e-7}, "weight");
    check_copy();
  }
};

TEST(Sgd, Step) {
  check_kernel<SgdCase<true, false>>(odd_shapes(), {DType::f32});
  check_kernel<SgdCase<false, false>>(odd_shapes(), {DType::f32});
  check_kernel<SgdCase<false, true>>(odd_shapes(), {DType::f32});
}

// The buffer's contents do not count at the first step, not even a NaN.
TEST(Sgd, FirstStepIgnoresTheBuffer) {
  Matrix weight(DType::f32, 1, 19), grad(weight), buffer(weight);
  weight.fill([](auto, auto) { return 1.0; });
  grad.fill([](auto, auto) { return 2.0; });
  buffer.fill([](auto, auto) { return NAN; });
  sgd_step(*TestContext(), {weight.view(), grad.view(), buffer.view(), 0.5, 0.9, 0.0, 0.0, false, true, 1.0});
  expect_near(
      weight, [](auto, auto) { return 0.0; }, {0, 0}, "weight");
}

struct LionCase : StepCase {
  using StepCase::StepCase;
  void run(KernelContext& context) {
    lion_step(context,
              {{weight.view(), copy.view()}, grad.view(), first.view(), kLr, 0.9, 0.99, kDecay, kScale});
  }
  void check() const {
    expect_near(
        first, [&](auto r, auto c) { return 0.99 * first_before.at(r, c) + 0.01 * g(r, c); }, {1e-7, 4e-7},
        "m");
    expect_near(
        weight,
        [&](auto r, auto c) {
          const double sign = 0.9 * first_before.at(r, c) + 0.1 * g(r, c) > 0 ? 1 : -1;
          return weight_before.at(r, c) * (1 - kLr * kDecay) - kLr * sign;
        },
        {1e-7, 4e-7}, "weight");
    check_copy();
  }
};

TEST(Lion, Step) {
  check_kernel<LionCase>(odd_shapes(), {DType::f32});
}

struct MomentCase : StepCase {
  Matrix direction, combined;
  MomentCase(const Make& m, Rng& rng) : StepCase(m, rng), direction(weight), combined(weight) {}
  void run(KernelContext& context) {
    adam_direction(context,
                   {grad.view(), first.view(), second.view(), direction.view(), 0.9, 0.99, 1e-3, kScale});
    momentum_step(context, {.grad = grad.view(),
                            .momentum = weight.view(),
                            .output = combined.view(),
                            .keep = 0.8,
                            .add = 0.3,
                            .out_grad = 0.2,
                            .out_momentum = 0.7,
                            .grad_scale = kScale});
  }
  void check() const {
    const auto m = [&](auto r, auto c) { return 0.9 * first_before.at(r, c) + 0.1 * g(r, c); };
    const auto v = [&](auto r, auto c) { return 0.99 * second_before.at(r, c) + 0.01 * g(r, c) * g(r, c); };
    const auto momentum = [&](auto r, auto c) { return 0.8 * weight_before.at(r, c) + 0.3 * g(r, c); };
    expect_near(first, m, {1e-7, 4e-7}, "m");
    expect_near(second, v, {1e-7, 4e-7}, "v");
    expect_near(
        direction, [&](auto r, auto c) { return m(r, c) / (std::sqrt(v(r, c)) + 1e-3); }, {2e-6, 2e-6},
        "direction");
    expect_near(weight, momentum, {1e-7, 4e-7}, "momentum");
    expect_near(
        combined, [&](auto r, auto c) { return 0.2 * g(r, c) + 0.7 * momentum(r, c); }, {1e-7, 1e-6},
        "output");
  }
  std::vector<const Matrix*> outputs() const { return {&weight, &first, &second, &direction, &combined}; }
};

TEST(Moments, Steps) {
  check_kernel<MomentCase>(odd_shapes(), {DType::f32});
}

template <bool has_row, bool has_col>
struct UpdateCase : StepCase {
  std::vector<float> row, col;
  UpdateCase(const Make& m, Rng& rng) : StepCase(m, rng) {
    for (std::int64_t r = 0; r < m.shape.rows; ++r) row.push_back(static_cast<float>(rng.next_normal()));
    for (std::int64_t c = 0; c < m.shape.cols; ++c) col.push_back(static_cast<float>(rng.next_normal()));
  }
  double factor(std::int64_t r, std::int64_t c) const {
    return (has_row ? row[static_cast<std::size_t>(r)] : 1.0) *
           (has_col ? col[static_cast<std::size_t>(c)] : 1.0);
  }
  void run(KernelContext& context) {
    update_weights(context, {.weight = {weight.view(), copy.view()},
                             .update = grad.view(),
                             .row = has_row ? row.data() : nullptr,
                             .col = has_col ? col.data() : nullptr,
                             .before = 0.9,
                             .rate = 0.3,
                             .after = 0.8});
  }
  void check() const {
    expect_near(
        weight,
        [&](auto r, auto c) {
          return (0.9 * weight_before.at(r, c) - 0.3 * factor(r, c) * grad.at(r, c)) * 0.8;
        },
        {4e-7, 4e-7}, "weight");
    check_copy();
    double squares = 0;
    for (std::int64_t r = 0; r < grad.rows(); ++r) {
      for (std::int64_t c = 0; c < grad.cols(); ++c) squares += std::pow(factor(r, c) * grad.at(r, c), 2);
    }
    EXPECT_NEAR(scaled_squares(*TestContext(2), grad.view(), has_row ? row.data() : nullptr,
                               has_col ? col.data() : nullptr),
                squares, 1e-5 * squares);
  }
};

TEST(UpdateWeights, Scaled) {
  check_kernel<UpdateCase<false, false>>(odd_shapes(), {DType::f32});
  check_kernel<UpdateCase<true, false>>(odd_shapes(), {DType::f32});
  check_kernel<UpdateCase<false, true>>(odd_shapes(), {DType::f32});
  check_kernel<UpdateCase<true, true>>(odd_shapes(), {DType::f32});
}

struct SquaresCase {
  Matrix x, rows, cols;
  SquaresCase(const Make& m, Rng& rng)
      : x(DType::f32, m.shape.rows, m.shape.cols, m.gap),
        rows(DType::f32, 1, m.shape.rows),
        cols(DType::f32, 1, m.shape.cols) {
    x.fill_normal(rng);
  }
  void run(KernelContext& context) {
    row_squares(context, x.view(), rows.view().row<float>(0));
    col_squares(context, x.view(), cols.view().row<float>(0));
  }
  void check() const {
    const auto sum = [&](std::int64_t count, auto at) {
      double squares = 0;
      for (std::int64_t i = 0; i < count; ++i) squares += std::pow(at(i), 2);
      return squares;
    };
    expect_near(
        rows, [&](auto, auto r) { return sum(x.cols(), [&](auto c) { return x.at(r, c); }); }, {1e-6, 1e-5},
        "rows");
    expect_near(
        cols, [&](auto, auto c) { return sum(x.rows(), [&](auto r) { return x.at(r, c); }); }, {1e-6, 1e-5},
        "cols");
  }
  std::vector<const Matrix*> outputs() const { return {&rows, &cols}; }
};

TEST(Squares, RowsAndColumns) {
  check_kernel<SquaresCase>(odd_shapes(), {DType::f32});
}

struct CombineCase {
  Matrix x, y, out;
  CombineCase(const Make& m, Rng& rng)
      : x(m.dtype, m.shape.rows, m.shape.cols, m.gap), y(DType::f32, m.shape.rows, m.shape.cols), out(x) {
    x.fill_normal(rng);
    y.fill_normal(rng);
  }
  void run(KernelContext& context) { combine(context, {x.view(), y.view(), out.view(), 1.5, -0.5}); }
  void check() const {
    expect_near(
        out, [&](auto r, auto c) { return 1.5 * x.at(r, c) - 0.5 * y.at(r, c); }, tolerance_of(x.dtype()),
        "out");
  }
  std::vector<const Matrix*> outputs() const { return {&out}; }
};

TEST(Combine, TwoMatrices) {
  check_kernel<CombineCase>();
}

// Landmarks of the dynamic maps.
TEST(Maps8bit, Landmarks) {
  const auto &with_sign = signed_map_8bit(), &without = unsigned_map_8bit();
  EXPECT_TRUE(std::ranges::is_sorted(with_sign) && std::ranges::is_sorted(without));
  EXPECT_NEAR(with_sign[0], -0.99296874, 1e-7);
  EXPECT_NEAR(with_sign[126], -5.5e-7, 1e-12);
  EXPECT_EQ(with_sign[127], 0);
  EXPECT_NEAR(with_sign[128], 5.5e-7, 1e-12);
  EXPECT_EQ(with_sign[255], 1);
  EXPECT_EQ(without[0], 0);
  EXPECT_NEAR(without[1], 3.25e-7, 1e-12);
  EXPECT_NEAR(without[2], 7.75e-7, 1e-12);
  EXPECT_NEAR(without[254], 0.99648438, 1e-7);
  EXPECT_EQ(without[255], 1);
}

// Every value of the map, its neighbours and a sweep of magnitudes: never a value that is farther than
// another.
TEST(Maps8bit, NearestValue) {
  for_each_target([] {
    for (const bool is_signed : {false, true}) {
      const auto& map = is_signed ? signed_map_8bit() : unsigned_map_8bit();
      std::vector<float> values(map.begin(), map.end());
      for (std::size_t i = 0; i + 1 < 256; ++i) {
        for (const float share : {0.49f, 0.51f}) values.push_back(map[i] + share * (map[i + 1] - map[i]));
      }
      for (float x = 1e-9f; x < 1; x *= 1.003f) values.push_back(x);
      std::size_t wrong = 0;
      for (std::size_t begin = 0; begin < values.size(); begin += 200) {
        std::vector<float> block(
            values.begin() + static_cast<std::ptrdiff_t>(begin),
            values.begin() + static_cast<std::ptrdiff_t>(std::min(begin + 200, values.size())));
        block.push_back(1.0f);
        std::vector<std::uint8_t> codes(block.size() + 1, 77);
        EXPECT_EQ(
            quantize_8bit(block.data(), static_cast<std::int64_t>(block.size()), is_signed, codes.data()),
            1.0f);
        EXPECT_EQ(codes.back(), 77) << "wrote beyond the block";
        for (std::size_t i = 0; i < block.size(); ++i) {
          const double got = std::abs(static_cast<double>(map[codes[i]]) - block[i]);
          for (const float other : map)
            wrong += std::abs(static_cast<double>(other) - block[i]) < got - 1e-8 * got;
        }
      }
      EXPECT_EQ(wrong, 0u) << is_signed;
    }
  });
}

TEST(Maps8bit, ZerosHaveTheCodeOfZero) {
  const std::vector<float> zeros(5, 0.0f);
  std::vector<std::uint8_t> codes(5, 9);
  EXPECT_EQ(quantize_8bit(zeros.data(), 5, true, codes.data()), 0.0f);
  EXPECT_EQ(codes, std::vector<std::uint8_t>(5, 127));
  EXPECT_EQ(quantize_8bit(zeros.data(), 5, false, codes.data()), 0.0f);
  EXPECT_EQ(codes, std::vector<std::uint8_t>(5, 0));
}

// Two steps against double precision with the kernel's own codes in between; the same for threads, and
// nothing beyond the arrays.
TEST(AdamW8bit, Steps) {
  for_each_target([] {
    for (const std::int64_t n : {1, 255, 256, 257, 1000, 70000}) {
      const std::int64_t blocks = (n + 255) / 256;
      std::vector<std::vector<std::uint8_t>> all_codes;
      for (const int threads : {1, 3}) {
        Rng rng(5, "8bit");
        Matrix weight(DType::f32, 1, n), grad(weight), absmax1(DType::f32, 1, blocks), absmax2(absmax1);
        Matrix copy(DType::bf16, 1, n);
        weight.fill_normal(rng);
        std::vector<std::uint8_t> codes1(static_cast<std::size_t>(n) + 1, 127), codes2(codes1.size(), 0);
        absmax1.fill([](auto, auto) { return 0.0; });
        absmax2.fill([](auto, auto) { return 0.0; });
        for (int t = 1; t <= 2; ++t) {
          grad.fill_normal(rng);
          const Matrix before = weight, old1 = absmax1, old2 = absmax2;
          const auto was1 = codes1, was2 = codes2;
          adamw_8bit_step(*TestContext(threads), {{weight.view(), copy.view()},
                                                  grad.view(),
                                                  codes1.data(),
                                                  codes2.data(),
                                                  absmax1.view().row<float>(0),
                                                  absmax2.view().row<float>(0),
                                                  0.01,
                                                  0.9,
                                                  0.99,
                                                  1e-8,
                                                  0.1,
                                                  1 - std::pow(0.9, t),
                                                  1 - std::pow(0.99, t),
                                                  0.5});
          expect_near(
              weight,
              [&](auto, auto i) {
                const auto k = static_cast<std::size_t>(i);
                const double g = 0.5 * grad.at(0, i);
                const double m = 0.9 * signed_map_8bit()[was1[k]] * old1.at(0, i / 256) + 0.1 * g;
                const double v = 0.99 * unsigned_map_8bit()[was2[k]] * old2.at(0, i / 256) + 0.01 * g * g;
                return before.at(0, i) * (1 - 0.001) -
                       0.01 / (1 - std::pow(0.9, t)) * m / (std::sqrt(v / (1 - std::pow(0.99, t))) + 1e-8);
              },
              {1e-7, 4e-7}, "weight");
        }
        EXPECT_EQ(codes1.back(), 127);
        EXPECT_EQ(codes2.back(), 0);
        EXPECT_TRUE(absmax1.guards_intact() && absmax2.guards_intact() && copy.guards_intact());
        all_codes.push_back(codes1);
        all_codes.push_back(codes2);
      }
      EXPECT_EQ(all_codes[0], all_codes[2]);
      EXPECT_EQ(all_codes[1], all_codes[3]);
    }
  });
}

}  // namespace
}  // namespace lode::test
