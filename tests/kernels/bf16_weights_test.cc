// Weights in bf16 without f32 masters, as passes of optimizers update them.
#include <array>
#include <bit>

#include "kernels/kernel_test.h"
#include "kernels/optimizer.h"

namespace lode::test {
namespace {

// bf16 weights without masters: each is rounded as the counter-based number of its element says, whatever the
// target, the threads and how the matrix lies in memory.
TEST(Bf16Weights, AreRoundedAtRandomByElement) {
  const PhiloxKey key = make_key(3, "rounding");
  const std::vector<std::array<std::int64_t, 3>> shapes = {{1, 1, 0}, {3, 37, 5}, {2, 20000, 0}};
  for_each_target([&] {
    for (const auto& [rows, cols, gap] : shapes) {
      for (const int threads : {1, 3}) {
        Rng rng(7, "bf16 weights");
        Matrix weight(DType::bf16, rows, cols, gap), change(DType::f32, rows, cols, gap);
        weight.fill_normal(rng);
        change.fill_normal(rng, 0, 1e-3);
        const Matrix before = weight;
        WeightUpdate update{.weight = weight.view(), .update = change.view()};
        update.weight.key = key;
        update_weights(*TestContext(threads), update);
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t c = 0; c < cols; ++c) {
            const auto element = static_cast<std::uint32_t>(r * cols + c);
            const std::uint32_t word = philox({element / 8, 0, 0, 0}, key)[element % 8 / 2];
            const auto exact = static_cast<float>(before.at(r, c)) - static_cast<float>(change.at(r, c));
            const auto bits =
                std::bit_cast<std::uint32_t>(exact) + ((word >> (16 * (element % 2))) & 0xffffu);
            ASSERT_EQ(static_cast<float>(weight.at(r, c)), std::bit_cast<float>(bits & 0xffff0000u))
                << r << " " << c;
          }
        }
        EXPECT_TRUE(weight.guards_intact());
      }
    }
  });
}

// Only the two neighbours appear, as often as makes the mean right (within four deviations of it).
TEST(Bf16Weights, RoundingAtRandomIsRightInTheMean) {
  constexpr std::int64_t kCount = 100000;
  constexpr double kStep = 0x1p-7, kUp = 0.3;  // of the way from 1 to the next value
  Matrix weight(DType::bf16, 1, kCount), change(DType::f32, 1, kCount);
  weight.fill([](auto, auto) { return 1.0; });
  change.fill([](auto, auto) { return -kUp * kStep; });
  WeightUpdate update{.weight = weight.view(), .update = change.view()};
  update.weight.key = make_key(1, "mean");
  update_weights(*TestContext(2), update);
  std::int64_t up = 0;
  for (std::int64_t i = 0; i < kCount; ++i) {
    const double value = weight.at(0, i);
    ASSERT_TRUE(value == 1.0 || value == 1.0 + kStep) << value;
    up += value > 1.0 ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(up) / kCount, kUp, 4 * std::sqrt(kUp * (1 - kUp) / kCount));
}

TEST(Bf16Weights, KeepInfinityAndNaN) {
  Matrix weight(DType::bf16, 1, 3), change(DType::f32, 1, 3);
  weight.set(0, 0, INFINITY);
  weight.set(0, 1, NAN);
  weight.set(0, 2, -INFINITY);
  change.fill([](auto, auto) { return 0.0; });
  update_weights(*TestContext(), {.weight = weight.view(), .update = change.view()});
  EXPECT_EQ(weight.at(0, 0), INFINITY);
  EXPECT_TRUE(std::isnan(weight.at(0, 1)));
  EXPECT_EQ(weight.at(0, 2), -INFINITY);
}

// 10,000 additions of 1e-5 to 1: plain bf16 would stay at 1. The compensation's own rounding leaves two units
// of the weight's last place.
TEST(Bf16Weights, CompensationKeepsSmallSteps) {
  Matrix weight(DType::bf16, 1, 40), rest(weight), change(DType::f32, 1, 40);
  weight.fill([](auto, auto) { return 1.0; });
  rest.fill([](auto, auto) { return 0.0; });
  change.fill([](auto, auto) { return -1e-5; });
  WeightUpdate update{.weight = weight.view(), .update = change.view()};
  update.weight.compensation = rest.view();
  for (int i = 0; i < 10000; ++i) update_weights(*TestContext(), update);
  for (std::int64_t c = 0; c < 40; ++c) EXPECT_NEAR(weight.at(0, c), 1.1, 0x1p-6);
}

// A step with compensation is the f32 step, up to the compensation's own rounding.
TEST(Bf16Weights, CompensatedStepIsTheExactOne) {
  for_each_target([] {
    Rng rng(9, "compensated");
    Matrix weight(DType::bf16, 5, 77, 3), rest(weight), grad(DType::f32, 5, 77, 3), m(grad), v(grad);
    weight.fill_normal(rng);
    rest.fill_normal(rng, 0, 1e-4);
    grad.fill_normal(rng);
    m.fill([](auto, auto) { return 0.0; });
    v.fill([](auto, auto) { return 0.0; });
    Matrix exact(DType::f32, 5, 77, 3), m2 = m, v2 = v;
    exact.fill([&](auto r, auto c) { return weight.at(r, c) + rest.at(r, c); });
    AdamWStep step{weight.view(), grad.view(), m.view(), v.view(), 1e-3, 0.9, 0.99, 1e-8, 0.1, 0.1, 0.01, 1};
    step.weight.compensation = rest.view();
    adamw_step(*TestContext(), step);
    adamw_step(*TestContext(),
               {exact.view(), grad.view(), m2.view(), v2.view(), 1e-3, 0.9, 0.99, 1e-8, 0.1, 0.1, 0.01, 1});
    for (std::int64_t r = 0; r < 5; ++r) {
      for (std::int64_t c = 0; c < 77; ++c) {
        EXPECT_EQ(weight.at(r, c), rounded(DType::bf16, exact.at(r, c)));
        EXPECT_NEAR(weight.at(r, c) + rest.at(r, c), exact.at(r, c), 0x1p-16 * std::abs(exact.at(r, c)));
      }
    }
    EXPECT_TRUE(m.same_bits(m2) && v.same_bits(v2) && rest.guards_intact());
  });
}

}  // namespace
}  // namespace lode::test
