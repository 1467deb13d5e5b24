#include "io/checkpoint_writer.h"

#include <chrono>
#include <utility>

#include "core/fail.h"

namespace lode {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

CheckpointWriter::~CheckpointWriter() {
  if (running()) thread_.join();
}

void CheckpointWriter::begin(CheckpointContents contents) {
  LODE_ASSERT(!running());
  check_space(files_, contents);
  contents_ = std::move(contents);
  saved_ = {checkpoint_path(contents_.output_dir, contents_.step), contents_.step, checkpoint_size(contents_),
            0, 0};
  failure_ = nullptr;
  done_ = false;
  written_.store(0, std::memory_order_release);
  thread_ = std::thread([this] { run(); });
}

void CheckpointWriter::run() {
  const Clock::time_point start = Clock::now();
  try {
    save_checkpoint(files_, contents_, [this](std::size_t parameter) { set_written(parameter + 1); });
  } catch (...) {
    failure_ = std::current_exception();
  }
  saved_.seconds = seconds_since(start);
  done_.store(true, std::memory_order_release);
  set_written(SIZE_MAX);  // after a failure, too, the trainer goes on
}

void CheckpointWriter::set_written(std::size_t count) {
  {
    std::lock_guard lock(mutex_);
    written_.store(count, std::memory_order_release);
  }
  progress_.notify_one();
}

double CheckpointWriter::wait(std::size_t parameter) {
  const Clock::time_point start = Clock::now();
  {
    std::unique_lock lock(mutex_);
    progress_.wait(lock, [&] { return written_.load(std::memory_order_acquire) > parameter; });
  }
  const double seconds = seconds_since(start);
  stall_seconds_ += seconds;
  return seconds;
}

std::optional<SavedCheckpoint> CheckpointWriter::poll() {
  if (!running() || !done_.load(std::memory_order_acquire)) return std::nullopt;
  return finish();
}

std::optional<SavedCheckpoint> CheckpointWriter::finish() {
  if (!running()) return std::nullopt;
  thread_.join();
  saved_.stall_seconds = std::exchange(stall_seconds_, 0.0);
  contents_ = {};
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  return saved_;
}

}  // namespace lode
