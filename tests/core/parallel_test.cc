#include "core/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <numeric>
#include <vector>

#include "temp_folder.h"

namespace lode {
namespace {

TEST(Parallel, ForCoversEachIndexOnce) {
  for (const int threads : {0, 1, 2, 5}) {
    for (const std::int64_t n : {0, 1, 2, 7, 1000}) {
      for (const std::int64_t grain : {0, 1, 3, 2000}) {
        std::vector<std::atomic<int>> seen(static_cast<std::size_t>(n));
        std::atomic<std::int64_t> smallest{n};
        parallel_for(threads, n, grain, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
          std::int64_t least = smallest;
          while (end - begin < least && !smallest.compare_exchange_weak(least, end - begin)) {
          }
        });
        for (const auto& count : seen) ASSERT_EQ(count, 1);
        ASSERT_GE(smallest, std::min(n, grain));
      }
    }
  }
}

TEST(Parallel, TasksRunOnceOnAValidThread) {
  for (const int threads : {1, 2, 5}) {
    std::vector<std::atomic<int>> seen(333);
    parallel_tasks(threads, 333, [&](std::int64_t task, int thread) {
      ++seen[static_cast<std::size_t>(task)];
      ASSERT_LT(thread, threads);
    });
    for (const auto& count : seen) ASSERT_EQ(count, 1);
  }
}

TEST(Parallel, ExceptionsReachTheCaller) {
  for (const int threads : {1, 2, 5}) {
    EXPECT_EQ(error_of([&] {
                parallel_for(threads, 100, 1, [](std::int64_t begin, std::int64_t end) {
                  if (begin <= 77 && 77 < end) fail(ErrorKind::data, "at {}", 77);
                });
              }),
              "at 77");
    EXPECT_EQ(error_of([&] {
                parallel_tasks(threads, 100, [](std::int64_t task, int) {
                  if (task >= 50) fail(ErrorKind::data, "tasks");
                });
              }),
              "tasks");
    std::atomic<int> ran{0};  // and the pool still works
    parallel_tasks(threads, 10, [&](std::int64_t, int) { ++ran; });
    EXPECT_EQ(ran, 10);
  }
}

TEST(Parallel, NestedCallsRunInline) {
  std::atomic<int> count{0};
  parallel_tasks(2, 4, [&](std::int64_t, int) {
    parallel_for(2, 10, 1,
                 [&](std::int64_t begin, std::int64_t end) { count += static_cast<int>(end - begin); });
    parallel_tasks(2, 3, [&](std::int64_t, int thread) {
      EXPECT_EQ(thread, 0);
      ++count;
    });
  });
  EXPECT_EQ(count, 4 * 13);
  EXPECT_GE(available_threads(), 1);
}

}  // namespace
}  // namespace lode
