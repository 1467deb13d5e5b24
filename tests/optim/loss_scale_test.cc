#include "optim/loss_scale.h"

#include <gtest/gtest.h>

#include <vector>

namespace lode {
namespace {

TEST(LossScale, FallsAtOverflowsAndGrowsAfterGoodSteps) {
  LossScale scale{.value = 8};
  std::vector<double> values;
  for (const bool overflow : {true, false, false, true, false, false, false, false, false, false}) {
    scale.update(overflow, 3);
    values.push_back(scale.value);
  }
  EXPECT_EQ(values, (std::vector<double>{4, 4, 4, 2, 2, 2, 4, 4, 4, 8}));
}

TEST(LossScale, StaysWithinItsBounds) {
  LossScale scale{.value = 1};
  scale.update(true, 1);
  EXPECT_EQ(scale.value, LossScale::kLeast);
  for (int i = 0; i < 500; ++i) scale.update(false, 1);
  EXPECT_EQ(scale.value, 0x1p99);
}

}  // namespace
}  // namespace lode
