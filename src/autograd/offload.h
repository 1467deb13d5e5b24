// The third policy of `Saved`: a tensor waits in a file between its forward and its backward. Made for
// blocks' inputs, which backward needs in the reverse of the order in which they were made.
//
// With two buffers, while one block's backward runs the input of the block before it is already being read;
// in the forward one tensor is being written while the next is made. With one buffer reading begins when the
// buffer is free, after the block's backward. Synchronously nothing runs beside the computation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autograd/saved.h"
#include "core/background.h"
#include "core/scratch_file.h"

namespace lode {

enum class OffloadBuffers { none, one, two };  // none: synchronous

struct OffloadCounts {
  std::int64_t written = 0, read = 0;  // tensors
  std::uint64_t bytes_written = 0, bytes_read = 0;
  std::int64_t stalls = 0;  // transfers that the computation had to wait for
  double time_stalled = 0;  // seconds of waiting
};

// Used by one thread; must outlive what it saved. Failures of the file are Error(data) naming the folder, out
// of the put() or get() that meets them.
class Offload {
 public:
  using Open = std::function<std::unique_ptr<ScratchFile>(const std::string& folder, bool direct)>;
  Offload(const std::string& folder, OffloadBuffers buffers, const Open& open = open_scratch);

  // Takes a whole contiguous tensor that nobody changes any more.
  Saved put(const Tensor& tensor);
  const OffloadCounts& counts() const { return counts_; }
  bool direct() const { return large_->direct(); }  // large tensors bypass the page cache

 private:
  class Offloaded;
  struct Entry {
    DType dtype;
    std::int64_t rows, cols;
    ScratchFile* file;
    std::uint64_t offset;
    std::size_t bytes;            // in the file, rounded up to its unit
    Tensor tensor;                // undefined: in the file alone
    Background::Handle transfer;  // null: none was started, or it was seen to be finished
    bool got = false;
  };
  void write(const std::shared_ptr<Entry>& entry);
  void read(Context& context, Entry& entry);
  void wait(Entry& entry);
  const Tensor& get(Context& context, Entry& entry);
  void release(Context* context, const Entry& entry);
  void run(const std::function<void()>& transfer);

  std::string folder_;
  OffloadBuffers buffers_;
  std::unique_ptr<ScratchFile> small_, large_;
  std::uint64_t small_end_ = 0, large_end_ = 0;
  std::vector<std::shared_ptr<Entry>> entries_;   // not yet released, in the order of put()
  std::vector<std::shared_ptr<Entry>> resident_;  // of them: in memory since they were put
  OffloadCounts counts_;
  Background background_;  // last: it stops before the files close
};

}  // namespace lode
