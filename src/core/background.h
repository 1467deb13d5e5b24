// Work done in order by one thread of its own, for reading and writing beside computation.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace lode {

class Background {
 public:
  // One piece of work; shared by who started it and the thread.
  class Job;
  using Handle = std::shared_ptr<Job>;

  Background();
  ~Background();  // the work that has begun is finished, the rest dropped
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  Handle start(std::function<void()> work);
  bool done(const Handle& job) const;  // also when it failed
  // Returns when the job is done; rethrows what it threw. What it captured is freed by then.
  void finish(const Handle& job);
  // True when it had not begun: it never will. False: it is done or under way.
  bool cancel(const Handle& job);

 private:
  void run();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Handle> waiting_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace lode
