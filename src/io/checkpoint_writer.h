// Saving in the background: tensors are streamed from live memory while the next step computes, and the
// optimizer waits, rarely, for the one it is about to change. There is no second copy of the state.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "io/checkpoint.h"

namespace lode {

struct SavedCheckpoint {
  std::string path;
  std::int64_t step = 0;
  std::uint64_t bytes = 0;
  double seconds = 0;        // from begin() until it was safe on the disk
  double stall_seconds = 0;  // of them the time that wait_until_written() cost
};

// begin, wait_until_written, poll and finish are called by one thread, the trainer's.
class CheckpointWriter {
 public:
  explicit CheckpointWriter(FileSystem& files) : files_(files) {}
  ~CheckpointWriter();  // waits for a running save; its failure goes unsaid
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Starts a save; the views must stay valid until it is finished. Called after an optimizer step, with no
  // save running (poll or finish said so). Throws Error(data) at once when the disk has not the space.
  void begin(CheckpointContents contents);

  // To be called before parameter `parameter` and the state that belongs to it change. Returns the seconds
  // waited; costs one atomic load when nothing is being saved or the tensor is already written.
  double wait_until_written(std::size_t parameter) {
    return written_.load(std::memory_order_acquire) > parameter ? 0 : wait(parameter);
  }

  bool running() const { return thread_.joinable(); }
  // The save's result once it is done, without and with waiting; nothing when none was started. A failed save
  // throws its Error(data) here, once; the trainer decides whether to go on.
  std::optional<SavedCheckpoint> poll();
  std::optional<SavedCheckpoint> finish();

 private:
  double wait(std::size_t parameter);
  void run();
  void set_written(std::size_t count);

  FileSystem& files_;
  CheckpointContents contents_;
  SavedCheckpoint saved_;
  double stall_seconds_ = 0;  // of the running save; the trainer's
  std::thread thread_;
  std::exception_ptr failure_;
  std::atomic<std::size_t> written_{SIZE_MAX};  // parameters whose tensors may change
  std::atomic<bool> done_{false};
  std::mutex mutex_;
  std::condition_variable progress_;
};

}  // namespace lode
