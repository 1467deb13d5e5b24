#include "core/rehearsal.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/parallel.h"

namespace lode {
namespace {

int tasks_run() {
  std::atomic<int> count{0};
  parallel_for(2, 10, 1,
               [&](std::int64_t begin, std::int64_t end) { count += static_cast<int>(end - begin); });
  parallel_tasks(2, 5, [&](std::int64_t, int) { ++count; });
  return count;
}

TEST(Rehearsal, LoopsRunNothingWhileOneLives) {
  EXPECT_EQ(tasks_run(), 15);
  {
    const Rehearsal outer;
    EXPECT_EQ(tasks_run(), 0);
    { const Rehearsal inner; }
    EXPECT_EQ(tasks_run(), 0) << "the outer one still lives";
    int elsewhere = 0;
    std::thread([&] { elsewhere = tasks_run(); }).join();
    EXPECT_EQ(elsewhere, 15) << "of the thread that made it";
  }
  EXPECT_EQ(tasks_run(), 15);
}

}  // namespace
}  // namespace lode
