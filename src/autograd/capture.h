// `graph: captured`: the memory of a micro-step is planned from a recorded one of the same shape and
// replayed.
//
// The first micro-step with a number of tokens (a bucket: T is rounded up) records which blocks it takes and
// gives back, in order. From then on a micro-step of that bucket runs in an arena in which each block has
// its place: nothing is allocated. Ops issue their kernels as ever, so that tokens, labels and Segments are
// inputs and results are the same bits; what is replayed is checked block by block, and a micro-step that
// takes another path leaves the arena, runs on as without one, and is recorded again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/memory_stretch.h"

namespace lode {

struct CaptureCounts {
  std::int64_t recorded = 0;        // micro-steps that made a plan for a new bucket
  std::int64_t recorded_again = 0;  // that left their plan and made a new one
  std::int64_t replayed = 0;        // that ran in their arena to the end
  std::int64_t dynamic = 0;         // whose arena would be larger than what they need without one
  std::size_t largest_arena = 0;    // bytes
};

// Used by the thread that runs the micro-steps. One per model.
class GraphCapture {
 public:
  // say: hears of each bucket that is recorded, again and why, or not used.
  explicit GraphCapture(std::function<void(const std::string&)> say) : say_(std::move(say)) {}

  // Spans a micro-step: everything that it takes is given back before the end.
  class MicroStep {
   public:
    // capture: may be nullptr, then nothing happens.
    MicroStep(GraphCapture* capture, Memory& memory, std::int64_t tokens);
    ~MicroStep();
    MicroStep(const MicroStep&) = delete;
    MicroStep& operator=(const MicroStep&) = delete;
    // Without it the micro-step failed, and nothing is learned from it.
    void done() { done_ = true; }

   private:
    GraphCapture* capture_;
    std::int64_t tokens_;
    bool done_ = false;
    std::optional<MemoryStretch> stretch_;
  };

  const CaptureCounts& counts() const { return counts_; }

 private:
  struct Bucket {
    ArenaPlan plan;
    bool usable = false;
  };
  void learn(std::int64_t tokens, const MemoryStretch& stretch);

  std::function<void(const std::string&)> say_;
  std::map<std::int64_t, Bucket> buckets_;
  CaptureCounts counts_;
};

}  // namespace lode
