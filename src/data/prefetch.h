// Steps made ahead of time by one thread of idle priority.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "data/loader.h"

namespace lode {

struct PrefetchCounts {
  std::int64_t hits = 0, stalls = 0;  // the step was ready, had to be waited for
  double time_stalled = 0;            // seconds
};

// Hands out steps first, first + 1, ... below `end`, at most two of them waiting. Results are those of
// make_step. The function is called on the thread alone; what it throws comes out of next().
class PrefetchingLoader {
 public:
  PrefetchingLoader(std::function<Step(std::int64_t)> make_step, std::int64_t first, std::int64_t end);
  PrefetchingLoader(const StepLoader& loader, std::int64_t first,
                    std::int64_t end);  // loader must outlive this
  ~PrefetchingLoader();
  PrefetchingLoader(const PrefetchingLoader&) = delete;
  PrefetchingLoader& operator=(const PrefetchingLoader&) = delete;

  Step next();  // called at most end - first times
  PrefetchCounts counts() const;

 private:
  void run(std::int64_t first, std::int64_t end);

  std::function<Step(std::int64_t)> make_step_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Step> ready_;
  std::exception_ptr failure_;
  bool stop_ = false, done_ = false;
  PrefetchCounts counts_;
  std::thread thread_;
};

}  // namespace lode
