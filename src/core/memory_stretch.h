// A stretch of work that comes back: what it takes from a Memory is recorded once, in order, and served from
// then on from an arena whose places were planned (core/arena_plan.h).
#pragma once

#include <array>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "core/arena_plan.h"
#include "core/memory.h"

namespace lode {

// One run of the stretch, from construction to destruction, for what this thread takes; one at a time in a
// Memory. Always records; with a plan it replays as long as each block asked for is the next one of the plan
// (same tag, not larger) and its place is free. From the first that is not, the rest of the arena is free
// memory and blocks come from the pool as without a plan: nothing else changes. Blocks that outlive the
// stretch stay valid.
class MemoryStretch {
 public:
  // plan: nullptr to record only; must outlive the stretch.
  MemoryStretch(Memory& memory, const ArenaPlan* plan);
  ~MemoryStretch();
  MemoryStretch(const MemoryStretch&) = delete;
  MemoryStretch& operator=(const MemoryStretch&) = delete;

  bool replays() const { return active_; }      // up to now
  std::size_t served() const { return next_; }  // blocks from the arena
  // Why it stopped replaying; "" when it did not.
  const std::string& deviation() const { return deviation_; }
  // All blocks taken so far that were given back, planned. Those still in use are not part of the stretch.
  ArenaPlan plan() const;

 private:
  friend class Memory;
  struct Arena {
    std::byte* begin = nullptr;
    std::size_t size = 0;
    std::map<std::byte*, std::size_t> live;  // blocks in it
    bool contains(const std::byte* data) const { return data >= begin && data < begin + size; }
    bool free(const std::byte* data, std::size_t size) const;
  };
  // Called by Memory, which holds its lock.
  bool concerns() const { return std::this_thread::get_id() == thread_; }
  std::byte* place(std::size_t bytes, std::size_t capacity, MemoryTag tag, bool large);
  void taken(const std::byte* data, std::size_t bytes, std::size_t capacity, MemoryTag tag, bool large);
  bool given_back(std::byte* data);  // true: it was a place of the arena
  void leave_arena();

  Memory& memory_;
  const ArenaPlan* plan_;
  std::thread::id thread_ = std::this_thread::get_id();
  bool active_ = false;
  std::array<Arena, 2> arenas_;
  std::size_t next_ = 0;  // of the plan's blocks
  std::string deviation_;
  std::int64_t time_ = 0;
  std::vector<PlannedBlock> blocks_;                // last = 0: in use
  std::map<const std::byte*, std::size_t> in_use_;  // indices into blocks_
};

}  // namespace lode
