// parallel_for on std::thread: for the thread sanitizer, which does not understand OpenMP's runtime.
#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/parallel.h"
#include "core/rehearsal.h"

namespace lode {
namespace {

thread_local bool in_parallel = false;

template <class Body>
void run_on(int parts, const Body& body) {
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&](int part) {
    in_parallel = true;
    try {
      body(part);
    } catch (...) {
      std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
    in_parallel = false;
  };
  std::vector<std::thread> threads;
  for (int part = 1; part < parts; ++part) threads.emplace_back(work, part);
  work(0);
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

void parallel_for(int threads, std::int64_t n, std::int64_t grain,
                  FunctionRef<void(std::int64_t, std::int64_t)> body) {
  if (n <= 0 || Rehearsal::active()) return;
  const std::int64_t parts = std::min<std::int64_t>(threads, n / std::max<std::int64_t>(grain, 1));
  if (parts <= 1 || in_parallel) {
    body(0, n);
    return;
  }
  run_on(static_cast<int>(parts), [&](int part) { body(n * part / parts, n * (part + 1) / parts); });
}

void parallel_tasks(int threads, std::int64_t n, FunctionRef<void(std::int64_t, int)> body) {
  if (n <= 0 || Rehearsal::active()) return;
  const int parts = static_cast<int>(std::min<std::int64_t>(threads, n));
  if (parts <= 1 || in_parallel) {
    for (std::int64_t task = 0; task < n; ++task) body(task, 0);
    return;
  }
  std::atomic<std::int64_t> next{0};
  run_on(parts, [&](int part) {
    for (std::int64_t task = next++; task < n; task = next++) body(task, part);
  });
}

}  // namespace lode
