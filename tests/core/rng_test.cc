#include "core/rng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace lode {
namespace {

// Known answers published with Random123 for philox4x32-10.
TEST(Rng, PhiloxKnownAnswers) {
  using Block = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Rng, HashNameIsFnv1a) {
  EXPECT_EQ(hash_name(""), 0xcbf29ce484222325u);
  EXPECT_EQ(hash_name("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(hash_name("foobar"), 0x85944171f73967e8u);
}

TEST(Rng, StreamsDependOnSeedAndNameOnly) {
  Rng a(1, "x"), b(1, "x"), c(1, "y"), d(2, "x");
  const auto first = a.next_u32();
  EXPECT_EQ(first, b.next_u32());
  EXPECT_NE(first, c.next_u32());
  EXPECT_NE(first, d.next_u32());
}

TEST(Rng, BelowIsUniformAndInRange) {
  Rng rng(7, "below");
  std::array<int, 10> counts{};
  for (int i = 0; i < 100000; ++i) ++counts[rng.below(10)];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
  EXPECT_EQ(rng.below(1), 0u);
  for (int i = 0; i < 1000; ++i)
    EXPECT_LT(rng.below((std::uint64_t{1} << 63) + 1), (std::uint64_t{1} << 63) + 1);
}

TEST(Rng, UniformAndNormalMoments) {
  Rng rng(3, "moments");
  double uniform = 0, sum = 0, squares = 0;
  constexpr int kSamples = 200000;
  for (int i = 0; i < kSamples; ++i) {
    const double u = rng.next_uniform();
    ASSERT_TRUE(u >= 0 && u < 1);
    uniform += u;
    const double x = rng.next_normal();
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(uniform / kSamples, 0.5, 0.005);
  EXPECT_NEAR(sum / kSamples, 0, 0.01);
  EXPECT_NEAR(squares / kSamples, 1, 0.02);
}

TEST(Rng, PermutationsArePermutations) {
  for (const std::uint32_t n : {0u, 1u, 2u, 1000u}) {
    auto order = random_permutation(n, 5, "p");
    EXPECT_EQ(order, random_permutation(n, 5, "p"));
    if (n == 1000) {
      EXPECT_NE(order, random_permutation(n, 6, "p"));
    }
    std::ranges::sort(order);
    for (std::uint32_t i = 0; i < n; ++i) ASSERT_EQ(order[i], i);
  }
  std::set<std::vector<std::uint32_t>> all;  // every order of three appears
  for (std::uint64_t seed = 0; seed < 100; ++seed) all.insert(random_permutation(3, seed, "p"));
  EXPECT_EQ(all.size(), 6u);
}

}  // namespace
}  // namespace lode
