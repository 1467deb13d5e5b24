#include "core/background.h"

#include <algorithm>
#include <utility>

namespace lode {

class Background::Job {
 public:
  explicit Job(std::function<void()> task) : work(std::move(task)) {}

  std::function<void()> work;
  std::exception_ptr failure;
  bool done = false;
};

Background::Background() : thread_([this] { run(); }) {}

Background::~Background() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    waiting_.clear();
  }
  changed_.notify_all();
  thread_.join();
}

Background::Handle Background::start(std::function<void()> work) {
  auto job = std::make_shared<Job>(std::move(work));
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(job);
  }
  changed_.notify_all();
  return job;
}

bool Background::done(const Handle& job) const {
  const std::lock_guard lock(mutex_);
  return job->done;
}

void Background::finish(const Handle& job) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return job->done; });
  if (job->failure) std::rethrow_exception(job->failure);
}

bool Background::cancel(const Handle& job) {
  const std::lock_guard lock(mutex_);
  return std::erase(waiting_, job) != 0;
}

void Background::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (stop_) return;
    const Handle job = std::move(waiting_.front());
    waiting_.pop_front();
    std::function<void()> work = std::move(job->work);
    lock.unlock();
    std::exception_ptr failure;
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
    work = nullptr;
    lock.lock();
    job->failure = std::move(failure);
    job->done = true;
    changed_.notify_all();
  }
}

}  // namespace lode
