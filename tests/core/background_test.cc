#include "core/background.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace lode {
namespace {

TEST(Background, WorksInOrder) {
  std::vector<int> order;
  Background background;
  std::vector<Background::Handle> jobs;
  for (int i = 0; i < 5; ++i) jobs.push_back(background.start([&order, i] { order.push_back(i); }));
  background.finish(jobs.back());
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  for (const auto& job : jobs) EXPECT_TRUE(background.done(job));
}

TEST(Background, WhatAJobThrowsComesOutOfFinish) {
  Background background;
  const auto bad = background.start([] { throw std::runtime_error("broken"); });
  const auto good = background.start([] {});
  EXPECT_THROW(background.finish(bad), std::runtime_error);
  background.finish(good);
}

TEST(Background, CancelsWhatHasNotBegun) {
  std::atomic<bool> go = false, second = false;
  Background background;
  const auto first = background.start([&] {
    while (!go) std::this_thread::yield();
  });
  const auto waiting = background.start([&] { second = true; });
  EXPECT_TRUE(background.cancel(waiting));
  EXPECT_FALSE(background.cancel(waiting));
  go = true;
  background.finish(first);
  EXPECT_FALSE(background.cancel(first));
  background.finish(background.start([] {}));
  EXPECT_FALSE(second);
}

TEST(Background, FreesWhatAJobCaptured) {
  Background background;
  auto held = std::make_shared<int>(1);
  const auto job = background.start([held] {});
  background.finish(job);
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace lode
