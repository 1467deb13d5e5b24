// parallel_for on OpenMP's pool.
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>

#include "core/parallel.h"
#include "core/rehearsal.h"

namespace lode {
namespace {

class FirstException {
 public:
  template <class F>
  void run(F&& f) {
    try {
      f();
    } catch (...) {
      if (!taken_.exchange(true)) exception_ = std::current_exception();
    }
  }
  bool taken() const { return taken_.load(std::memory_order_relaxed); }
  void rethrow() {
    if (exception_) std::rethrow_exception(exception_);
  }

 private:
  std::atomic<bool> taken_{false};
  std::exception_ptr exception_;
};

}  // namespace

void parallel_for(int threads, std::int64_t n, std::int64_t grain,
                  FunctionRef<void(std::int64_t, std::int64_t)> body) {
  if (n <= 0 || Rehearsal::active()) return;
  const std::int64_t parts = std::min<std::int64_t>(threads, n / std::max<std::int64_t>(grain, 1));
  if (parts <= 1 || omp_in_parallel()) {
    body(0, n);
    return;
  }
  FirstException failure;
#pragma omp parallel for num_threads(static_cast <int>(parts)) schedule(static, 1)
  for (std::int64_t part = 0; part < parts; ++part) {
    failure.run([&] { body(n * part / parts, n * (part + 1) / parts); });
  }
  failure.rethrow();
}

void parallel_tasks(int threads, std::int64_t n, FunctionRef<void(std::int64_t, int)> body) {
  if (n <= 0 || Rehearsal::active()) return;
  const int parts = static_cast<int>(std::min<std::int64_t>(threads, n));
  if (parts <= 1 || omp_in_parallel()) {
    for (std::int64_t task = 0; task < n; ++task) body(task, 0);
    return;
  }
  FirstException failure;
#pragma omp parallel for num_threads(parts) schedule(dynamic, 1)
  for (std::int64_t task = 0; task < n; ++task) {
    if (!failure.taken()) failure.run([&] { body(task, omp_get_thread_num()); });
  }
  failure.rethrow();
}

}  // namespace lode
