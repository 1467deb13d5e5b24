#include "data/prefetch.h"

#include <sched.h>

#include <chrono>

#include "core/fail.h"

namespace lode {
namespace {

constexpr std::size_t kAhead = 2;

}  // namespace

PrefetchingLoader::PrefetchingLoader(std::function<Step(std::int64_t)> make_step, std::int64_t first,
                                     std::int64_t end)
    : make_step_(std::move(make_step)), thread_([this, first, end] { run(first, end); }) {}

PrefetchingLoader::PrefetchingLoader(const StepLoader& loader, std::int64_t first, std::int64_t end)
    : PrefetchingLoader([&loader](std::int64_t step) { return loader.make_step(step); }, first, end) {}

PrefetchingLoader::~PrefetchingLoader() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void PrefetchingLoader::run(std::int64_t first, std::int64_t end) {
  // Runs only when a core is idle: a busy helper stalls every barrier of the compute threads. Refused, it
  // runs as they do.
  const sched_param no_priority{};
  ::sched_setscheduler(0, SCHED_IDLE, &no_priority);
  try {
    for (std::int64_t step = first; step < end; ++step) {
      Step made = make_step_(step);
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || ready_.size() < kAhead; });
      if (stop_) return;
      ready_.push_back(std::move(made));
      changed_.notify_all();
    }
  } catch (...) {
    std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
  }
  std::lock_guard lock(mutex_);
  done_ = true;
  changed_.notify_all();
}

Step PrefetchingLoader::next() {
  std::unique_lock lock(mutex_);
  if (ready_.empty() && !done_) {
    ++counts_.stalls;
    const auto start = std::chrono::steady_clock::now();
    changed_.wait(lock, [this] { return !ready_.empty() || done_; });
    counts_.time_stalled += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  } else {
    ++counts_.hits;
  }
  if (ready_.empty()) {
    if (failure_) std::rethrow_exception(failure_);
    LODE_ASSERT(!"a step beyond the last was asked for");
  }
  Step step = std::move(ready_.front());
  ready_.pop_front();
  changed_.notify_all();
  return step;
}

PrefetchCounts PrefetchingLoader::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace lode
