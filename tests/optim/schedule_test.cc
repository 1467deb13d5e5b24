#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace lode {
namespace {

Schedule make(ScheduleKind kind, std::int64_t warmup, std::int64_t total) {
  return {.kind = kind, .warmup_steps = warmup, .total_steps = total};
}

TEST(Schedule, WarmUpRisesFromZero) {
  for (const ScheduleKind kind : {ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::constant,
                                  ScheduleKind::warmup_stable_decay}) {
    const Schedule s = make(kind, 10, 100);
    for (int i = 0; i < 10; ++i) EXPECT_DOUBLE_EQ(s.multiplier(i), i / 10.0);
    EXPECT_DOUBLE_EQ(s.multiplier(10), 1);
    EXPECT_DOUBLE_EQ(make(kind, 0, 100).multiplier(0), 1);
    EXPECT_DOUBLE_EQ(make(kind, 1, 100).multiplier(0), 0);
  }
}

TEST(Schedule, Constant) {
  for (const int i : {10, 50, 100, 1000}) EXPECT_EQ(make(ScheduleKind::constant, 10, 100).multiplier(i), 1);
}

TEST(Schedule, Linear) {
  const Schedule s = make(ScheduleKind::linear, 10, 100);
  for (int i = 10; i <= 100; ++i) EXPECT_DOUBLE_EQ(s.multiplier(i), (100 - i) / 90.0);
  EXPECT_EQ(s.multiplier(150), 0);
}

TEST(Schedule, Cosine) {
  Schedule s = make(ScheduleKind::cosine, 10, 100);
  EXPECT_DOUBLE_EQ(s.multiplier(10), 1);
  EXPECT_NEAR(s.multiplier(55), 0.5, 1e-15);
  EXPECT_NEAR(s.multiplier(100), 0, 1e-15);
  for (int i = 10; i <= 100; ++i) {
    EXPECT_NEAR(s.multiplier(i), 0.5 * (1 + std::cos(std::numbers::pi * (i - 10) / 90.0)), 1e-15);
  }
  s.min_lr_ratio = 0.1;
  EXPECT_DOUBLE_EQ(s.multiplier(10), 1);
  EXPECT_NEAR(s.multiplier(55), 0.55, 1e-15);
  EXPECT_NEAR(s.multiplier(100), 0.1, 1e-15);
  EXPECT_DOUBLE_EQ(s.multiplier(5), 0.5) << "the warm-up starts at 0 all the same";
}

TEST(Schedule, WarmupStableDecay) {
  Schedule s = make(ScheduleKind::warmup_stable_decay, 10, 100);
  s.decay_steps = 20;
  for (int i = 10; i <= 80; ++i) EXPECT_EQ(s.multiplier(i), 1) << i;
  EXPECT_NEAR(s.multiplier(90), 0.5, 1e-15);
  EXPECT_NEAR(s.multiplier(85), 0.5 * (1 + std::cos(std::numbers::pi / 4)), 1e-15);
  EXPECT_EQ(s.multiplier(100), 0);
  EXPECT_EQ(s.multiplier(200), 0);
  s.decay = Schedule::Decay::linear;
  EXPECT_NEAR(s.multiplier(85), 0.75, 1e-15);
  s.decay = Schedule::Decay::one_minus_sqrt;
  EXPECT_NEAR(s.multiplier(85), 0.5, 1e-15);
  s.decay = Schedule::Decay::linear;
  s.min_lr_ratio = 0.1;
  EXPECT_NEAR(s.multiplier(0), 0.1, 1e-15) << "from the least rate";
  EXPECT_NEAR(s.multiplier(5), 0.55, 1e-15);
  EXPECT_NEAR(s.multiplier(90), 0.55, 1e-15);
  EXPECT_NEAR(s.multiplier(100), 0.1, 1e-15);
  s.decay_steps = 0;
  EXPECT_EQ(s.multiplier(99), 1);
  EXPECT_NEAR(s.multiplier(100), 0.1, 1e-15);
  s.decay_steps = -1;  // a tenth
  EXPECT_EQ(s.multiplier(90), 1);
  EXPECT_LT(s.multiplier(91), 1);
}

// Warm-up as long as the run, no steps at all: numbers, never a division by zero.
TEST(Schedule, Edges) {
  for (const ScheduleKind kind : {ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::constant,
                                  ScheduleKind::warmup_stable_decay}) {
    for (const std::int64_t warmup : {0, 1, 5, 20}) {
      for (const std::int64_t total : {0, 1, 5}) {
        for (const std::int64_t step : {0, 1, 4, 5, 6, 30}) {
          const double value = make(kind, warmup, total).multiplier(step);
          EXPECT_TRUE(value >= 0 && value <= 1) << value;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lode
