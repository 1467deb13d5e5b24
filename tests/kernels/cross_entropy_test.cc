#include "kernels/cross_entropy.h"

#include "kernels/kernel_test.h"

namespace lode::test {
namespace {

// log(sum exp z) of row r, and the first largest column.
struct RowSummary {
  double logsumexp = 0.0;
  std::int64_t largest = 0;
};
RowSummary summary(const Matrix& z, std::int64_t r) {
  RowSummary s;
  for (std::int64_t c = 1; c < z.cols(); ++c) {
    if (z.at(r, c) > z.at(r, s.largest)) s.largest = c;
  }
  double sum = 0.0;
  const double max = z.at(r, s.largest);
  for (std::int64_t c = 0; c < z.cols(); ++c) sum += std::exp(z.at(r, c) - max);
  s.logsumexp = max + std::log(sum);
  return s;
}

enum class Into { none, f32, bf16, logits, packed };

template <Into into>
struct LossCase {
  Matrix logits, before, own;
  std::vector<std::int32_t> labels;
  std::vector<float> weight, loss;
  std::vector<std::uint8_t> correct;
  Matrix loss_out, correct_out;

  LossCase(const Make& m, Rng& rng) : logits(m.dtype, m.shape.rows, m.shape.cols, m.gap) {
    logits.fill_normal(rng, 1.0, 3.0);
    for (std::int64_t r = 0; r < m.shape.rows; ++r) {
      const bool target = r % 5 != 4;
      labels.push_back(target ? static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(m.shape.cols)))
                              : -100);
      weight.push_back(target && r % 7 != 6 ? static_cast<float>(0.1 + rng.next_uniform()) : 0.0f);
      if (target && r % 3 == 0) logits.set(r, labels.back(), 20.0);  // a certain hit
    }
    loss.assign(labels.size(), -1.0f);
    correct.assign(labels.size(), 7);
    before = logits;
    if (into == Into::f32 || into == Into::bf16) {
      own = Matrix(into == Into::f32 ? DType::f32 : DType::bf16, m.shape.rows, m.shape.cols, 2 * m.gap);
    }
  }
  View gradient() {
    View view = into == Into::f32 || into == Into::bf16 ? own.view() : logits.view();
    if (into == Into::none) view.data = nullptr;
    if (into == Into::packed) {
      view.dtype = DType::bf16;
      view.stride *= 2;
    }
    return view;
  }
  void run(KernelContext& context) {
    cross_entropy_rows(before.dtype(), context, {logits.view(), labels, weight, loss, correct, gradient()});
    const auto n = static_cast<std::int64_t>(loss.size());
    loss_out = Matrix(DType::f32, 1, n);
    loss_out.fill([&](auto, auto r) { return loss[static_cast<std::size_t>(r)]; });
    correct_out = Matrix(DType::f32, 1, n);
    correct_out.fill([&](auto, auto r) { return correct[static_cast<std::size_t>(r)]; });
  }
  void check() {
    std::vector<RowSummary> rows;
    for (std::int64_t r = 0; r < before.rows(); ++r) rows.push_back(summary(before, r));
    const auto label = [&](std::int64_t r) { return labels[static_cast<std::size_t>(r)]; };
    const auto want_loss = [&](auto, std::int64_t r) {
      return label(r) < 0 ? 0.0 : rows[static_cast<std::size_t>(r)].logsumexp - before.at(r, label(r));
    };
    expect_near(loss_out, want_loss, {5e-6, 1e-6}, "loss");
    const auto want_correct = [&](auto, std::int64_t r) {
      return label(r) >= 0 && rows[static_cast<std::size_t>(r)].largest == label(r) ? 1.0 : 0.0;
    };
    expect_near(correct_out, want_correct, {0, 0}, "correct");
    if (into == Into::none) return;
    const View out = gradient();
    Matrix got(out.dtype, out.rows, out.cols);  // a copy, which reads the packed form too
    got.fill([&](auto r, auto c) {
      return static_cast<double>(out.dtype == DType::bf16 ? to_f32(out.row<bf16>(r)[c])
                                                          : out.row<float>(r)[c]);
    });
    const auto want = [&](std::int64_t r, std::int64_t c) {
      const auto i = static_cast<std::size_t>(r);
      if (label(r) < 0) return 0.0;
      const double softmax = std::exp(before.at(r, c) - rows[i].logsumexp);
      return static_cast<double>(weight[i]) * (softmax - (c == label(r) ? 1.0 : 0.0));
    };
    expect_near(got, want, tolerance_of(out.dtype, 2e-6), "dlogits");
    EXPECT_TRUE(logits.guards_intact());
    EXPECT_TRUE(own.guards_intact());
  }
  std::vector<const Matrix*> outputs() const { return {&loss_out, &correct_out, &logits, &own}; }
};

std::vector<Shape> loss_shapes() {
  std::vector<Shape> shapes = odd_shapes();
  shapes.push_back({9, 5003});  // more than two blocks
  return shapes;
}
TEST(CrossEntropy, LossAlone) {
  check_kernel<LossCase<Into::none>>(loss_shapes());
}
TEST(CrossEntropy, F32Gradient) {
  check_kernel<LossCase<Into::f32>>(loss_shapes());
}
TEST(CrossEntropy, Bf16Gradient) {
  check_kernel<LossCase<Into::bf16>>(loss_shapes());
}
TEST(CrossEntropy, GradientOverLogits) {
  check_kernel<LossCase<Into::logits>>(loss_shapes());
}
TEST(CrossEntropy, Bf16GradientOverF32Logits) {
  check_kernel<LossCase<Into::packed>>(loss_shapes(), {DType::f32});
}

struct OneRow {
  float loss = -1.0f;
  std::uint8_t correct = 7;
  Matrix gradient;
};
OneRow run_row(const std::vector<double>& values, std::int32_t label, DType dtype = DType::f32) {
  const auto n = static_cast<std::int64_t>(values.size());
  Matrix logits(dtype, 1, n);
  logits.fill([&](auto, auto c) { return values[static_cast<std::size_t>(c)]; });
  OneRow out;
  out.gradient = Matrix(DType::f32, 1, n);
  const float weight = 1.0f;
  cross_entropy_rows(
      dtype, *TestContext(),
      {logits.view(), {&label, 1}, {&weight, 1}, {&out.loss, 1}, {&out.correct, 1}, out.gradient.view()});
  return out;
}

TEST(CrossEntropy, GradientEqualsDifferences) {
  for_each_target([] {
    Rng rng(2, "loss");
    std::vector<double> z;
    for (int c = 0; c < 33; ++c)
      z.push_back(static_cast<double>(static_cast<float>(2.0 * rng.next_normal())));
    const OneRow got = run_row(z, 20);
    const auto want = [&](auto, std::int64_t c) {
      const auto loss = [&](double v) {
        double sum = 0.0;
        for (std::size_t j = 0; j < z.size(); ++j)
          sum += std::exp(static_cast<std::int64_t>(j) == c ? v : z[j]);
        return std::log(sum) - (c == 20 ? v : z[20]);
      };
      return central_difference(loss, z[static_cast<std::size_t>(c)]);
    };
    expect_near(got.gradient, want, {1e-7, 1e-6}, "dlogits");
  });
}

TEST(CrossEntropy, HugeLogits) {
  for_each_target([] {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      std::vector<double> z(5000, -1e4);
      z[4999] = 1e4;
      EXPECT_EQ(run_row(z, 4999, dtype).loss, 0.0f);
      EXPECT_EQ(run_row(z, 4999, dtype).correct, 1);
      const OneRow wrong = run_row(z, 0, dtype);
      EXPECT_NEAR(wrong.loss, 2e4, dtype == DType::f32 ? 0.01 : 100.0);
      EXPECT_EQ(wrong.gradient.at(0, 0), -1.0);
      EXPECT_EQ(wrong.gradient.at(0, 4999), 1.0);
      EXPECT_EQ(wrong.gradient.at(0, 2500), 0.0);
    }
  });
}

TEST(CrossEntropy, EqualLogits) {
  for_each_target([] {
    for (const double level : {0.0, -1e4, 1e4, -3e38}) {
      const std::vector<double> z(4097, level);
      const OneRow first = run_row(z, 0), last = run_row(z, 4096);
      EXPECT_NEAR(first.loss, std::log(4097.0), 1e-5);
      EXPECT_EQ(first.correct, 1);
      EXPECT_EQ(last.correct, 0) << "ties go to the first";
      EXPECT_NEAR(last.gradient.at(0, 7), 1.0 / 4097.0, 1e-9);
    }
  });
}

TEST(CrossEntropy, MaskedLogits) {
  for_each_target([] {
    // Whole blocks of -infinity count for nothing.
    std::vector<double> z(9000, -INFINITY);
    z[1] = 1.0;
    z[8000] = 2.0;
    const OneRow got = run_row(z, 1);
    EXPECT_NEAR(got.loss, std::log(std::exp(1.0) + std::exp(2.0)) - 1.0, 1e-6);
    EXPECT_EQ(got.gradient.at(0, 5000), 0.0);
    EXPECT_NEAR(got.gradient.at(0, 8000), 1.0 / (1.0 + std::exp(-1.0)), 1e-6);
    EXPECT_TRUE(std::isinf(run_row(z, 0).loss));
  });
}

TEST(CrossEntropy, NanAndInfinityReachTheLoss) {
  for_each_target([] {
    for (const double bad : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
      for (const std::size_t place : {std::size_t{0}, std::size_t{2500}, std::size_t{4999}}) {
        std::vector<double> z(5000, 0.5);
        z[place] = bad;
        EXPECT_FALSE(std::isfinite(run_row(z, 17).loss));
        EXPECT_FALSE(std::isfinite(run_row(z, 17, DType::bf16).loss));
      }
    }
  });
}

TEST(CrossEntropy, NoTargetIsExactlyZero) {
  const OneRow got = run_row({NAN, 1.0, INFINITY}, -100);
  EXPECT_EQ(got.loss, 0.0f);
  EXPECT_EQ(got.correct, 0);
  expect_near(
      got.gradient, [](auto, auto) { return 0.0; }, {0, 0}, "dlogits");
}

}  // namespace
}  // namespace lode::test
