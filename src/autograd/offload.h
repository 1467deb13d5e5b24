// The third policy of `Saved`: a tensor waits in a file between its forward and its backward. Tensors come in
// groups, which backward needs in the reverse of the order in which they were made: a block's input, or all
// that a block's ops save.
//
// With two buffers, while one group is used in backward the one before it is already being read; in the
// forward one group is being written while the next is made. With one buffer reading begins when the buffer
// is free, after the group's last use. Synchronously nothing runs beside the computation.
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

  // What is added from here on is a group.
  void begin_group();
  // Takes a whole contiguous tensor that nobody changes any more. The same tensor again, in its group, is
  // the same Saved.
  Saved add(const Tensor& tensor);
  // A group of one.
  Saved put(const Tensor& tensor);
  const OffloadCounts& counts() const { return counts_; }
  bool direct() const { return large_->direct(); }  // large tensors bypass the page cache

 private:
  class Offloaded;
  struct Group;
  struct Entry {
    std::shared_ptr<Group> group;
    DType dtype;
    std::int64_t rows, cols;
    ScratchFile* file;
    std::uint64_t offset;
    std::size_t bytes;            // in the file, rounded up to its unit
    Tensor tensor;                // undefined: in the file alone
    Background::Handle transfer;  // null: none was started, or it was seen to be finished
    std::weak_ptr<Offloaded> later;
  };
  struct Group {
    std::vector<Entry*> entries;  // not yet released
    bool resident = true;         // in memory since it was added
    bool got = false;             // backward has reached it
  };
  void evict(Group& group);
  void write(Entry& entry);
  void read(Context& context, Entry& entry);
  void read(Context& context, const Group& group);
  void reach(Context& context, Group& group);
  void wait(Entry& entry);
  const Tensor& get(Context& context, Entry& entry);
  void release(Context* context, Entry& entry);
  void run(const std::function<void()>& transfer);
  Group* before(const Group& group) const;

  std::string folder_;
  OffloadBuffers buffers_;
  std::unique_ptr<ScratchFile> small_, large_;
  std::uint64_t small_end_ = 0, large_end_ = 0;
  std::vector<std::shared_ptr<Group>> groups_;  // in their order; the last one takes what is added
  OffloadCounts counts_;
  Background background_;  // last: it stops before the files close
};

// What ops save while this lives is a group of the context's offload.
class OffloadedOps {
 public:
  OffloadedOps(Context& context, Offload& offload) : context_(context), before_(context.offload) {
    offload.begin_group();
    context.offload = &offload;
  }
  ~OffloadedOps() { context_.offload = before_; }
  OffloadedOps(const OffloadedOps&) = delete;
  OffloadedOps& operator=(const OffloadedOps&) = delete;

 private:
  Context& context_;
  Offload* before_;
};

}  // namespace lode
