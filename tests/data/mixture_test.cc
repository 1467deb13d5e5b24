#include "data/mixture.h"

#include <algorithm>

#include "data_testing.h"

namespace lode {
namespace {

using Order = std::vector<std::int64_t>;
const std::vector<Order> kSets = {{0, 1, 2, 3, 4}, {10, 11}};

TEST(Mixture, ConcatenatesAndTakesTurns) {
  EXPECT_EQ(mix_documents(kSets, {}, 1), (Order{0, 1, 2, 3, 4, 10, 11}));
  EXPECT_EQ(mix_documents(kSets, {Mixing::interleave_under, {}}, 1), (Order{0, 10, 1, 11}));
  EXPECT_EQ(mix_documents(kSets, {Mixing::interleave_over, {}}, 1), (Order{0, 10, 1, 11, 2, 10, 3, 11, 4}));
  EXPECT_EQ(mix_documents({{7}}, {Mixing::interleave_over, {}}, 1), Order{7});
  EXPECT_EQ(mix_documents({{}, {7}}, {}, 1), Order{7});
}

TEST(Mixture, ProbabilitiesDecideBySeed) {
  std::vector<Order> sets(2);
  for (int i = 0; i < 4000; ++i) sets[0].push_back(i), sets[1].push_back(10000 + i);
  const MixOptions options{Mixing::interleave_under, {3, 1}};
  const Order order = mix_documents(sets, options, 7);
  EXPECT_EQ(order, mix_documents(sets, options, 7));
  EXPECT_NE(order, mix_documents(sets, options, 8));
  const auto first = std::ranges::count_if(order, [](std::int64_t d) { return d < 10000; });
  EXPECT_EQ(first, 4000);
  EXPECT_NEAR(static_cast<double>(first) / static_cast<double>(order.size()), 0.75, 0.02);
  // Each set in its own order.
  Order second;
  for (const std::int64_t d : order) {
    if (d >= 10000) second.push_back(d);
  }
  EXPECT_TRUE(std::ranges::is_sorted(second));
  const Order over = mix_documents(sets, {Mixing::interleave_over, {3, 1}}, 7);
  for (const Order& set : sets) {
    for (const std::int64_t d : set) ASSERT_NE(std::ranges::find(over, d), over.end());
  }
}

TEST(Mixture, Errors) {
  const auto error = [](const std::vector<Order>& sets, std::vector<double> p, ErrorKind kind) {
    return error_of(kind, [&] { mix_documents(sets, {Mixing::interleave_over, std::move(p)}, 1); });
  };
  expect_contains(error(kSets, {1}, ErrorKind::usage), "interleave_probs has 1 values for 2 data sets");
  expect_contains(error(kSets, {1, 0}, ErrorKind::usage), "must be above 0, found 0");
  expect_contains(error({{1}, {}}, {}, ErrorKind::data), "data set number 2 of the mixture has no document");
}

}  // namespace
}  // namespace lode
