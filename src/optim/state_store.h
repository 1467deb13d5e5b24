// Optimizer state in a file instead of memory. In memory are the tensors of the parameter that is being
// updated, of the next one, which are read ahead, and of the ones before, until they are written.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "autograd/context.h"
#include "core/background.h"
#include "core/scratch_file.h"

namespace lode {

struct StateStoreCounts {
  std::int64_t read = 0, written = 0;  // parameters
  std::int64_t stalls = 0;             // of them those that the update had to wait for
  double time_stalled = 0;             // seconds
};

// Used by one thread but for read(). Failures of the file are Error(data) naming the folder, out of the call
// that meets them.
class StateStore {
 public:
  using Open = std::function<std::unique_ptr<ScratchFile>(const std::string& folder, bool direct)>;
  // Throws Error(data) when the folder is not there or refuses files.
  StateStore(std::string folder, std::size_t parameters, const Open& open = open_scratch);

  // Whether the state was put since the start.
  bool has(std::size_t parameter) const { return !entries_[parameter].places.empty(); }
  // Takes the tensors away and begins to write them. Always the same number and shapes for a parameter.
  void put(std::size_t parameter, std::vector<Tensor> tensors);
  // Begins to read what was put, unless it is being read.
  void read_ahead(Context& context, std::size_t parameter);
  // What was put, for a change that another put ends.
  std::vector<Tensor> take(Context& context, std::size_t parameter);
  // Waits until everything that was put is in the file.
  void flush();
  struct Shape {
    DType dtype;
    std::int64_t rows, cols;
  };
  Shape shape(std::size_t parameter, std::size_t index) const {
    return entries_[parameter].places.at(index).shape;
  }
  // A copy of one tensor, from any thread, between a flush() and the next put() of that parameter.
  Tensor read(Memory& memory, std::size_t parameter, std::size_t index) const;

  const StateStoreCounts& counts() const { return counts_; }

 private:
  struct Place {
    Shape shape;
    std::uint64_t offset;
  };
  struct Entry {
    std::vector<Place> places;
    std::vector<Tensor> arriving;
    Background::Handle transfer;
  };
  void finish(Background::Handle& handle);
  void with_advice(const std::function<void()>& transfer) const;

  std::string folder_;
  std::unique_ptr<ScratchFile> file_;
  std::uint64_t end_ = 0;
  std::vector<Entry> entries_;
  std::deque<Background::Handle> writes_;  // under way, oldest first
  StateStoreCounts counts_;
  Background background_;  // last: it stops before the file closes
};

}  // namespace lode
