#include "core/memory_stretch.h"

#include <iterator>

#include "core/fail.h"
#include "core/format.h"

namespace lode {

bool MemoryStretch::Arena::free(const std::byte* data, std::size_t bytes) const {
  const auto after = live.lower_bound(const_cast<std::byte*>(data));
  if (after != live.end() && after->first < data + bytes) return false;
  if (after == live.begin()) return true;
  const auto before = std::prev(after);
  return before->first + before->second <= data;
}

MemoryStretch::MemoryStretch(Memory& memory, const ArenaPlan* plan) : memory_(memory), plan_(plan) {
  const std::lock_guard lock(memory_.mutex_);
  LODE_ASSERT(memory_.stretch_ == nullptr);
  memory_.stretch_ = this;
  if (plan == nullptr) return;
  if (!memory_.room_for(plan->total())) {
    deviation_ = format("memory_limit has no room for {} at once", format_bytes(plan->total()));
    return;
  }
  try {
    for (const std::size_t i : {0, 1}) {
      if (plan->size[i] == 0) continue;
      arenas_[i].begin = memory_.take_arena(i == 1, plan->size[i]);
      arenas_[i].size = plan->size[i];
    }
  } catch (...) {
    leave_arena();
    memory_.stretch_ = nullptr;
    throw;
  }
  active_ = true;
}

MemoryStretch::~MemoryStretch() {
  const std::lock_guard lock(memory_.mutex_);
  leave_arena();
  memory_.stretch_ = nullptr;
}

// What is not in use becomes free memory; what is in use, blocks like all others.
void MemoryStretch::leave_arena() {
  active_ = false;
  for (const std::size_t i : {0, 1}) {
    Arena& arena = arenas_[i];
    std::byte* at = arena.begin;
    for (const auto& [data, capacity] : arena.live) {
      if (data > at) memory_.give_arena(i == 1, at, static_cast<std::size_t>(data - at));
      at = data + capacity;
    }
    std::byte* const end = arena.begin + arena.size;
    if (end > at) memory_.give_arena(i == 1, at, static_cast<std::size_t>(end - at));
    arena = {};
  }
}

std::byte* MemoryStretch::place(std::size_t bytes, std::size_t capacity, MemoryTag tag, bool large) {
  if (!active_) return nullptr;
  if (next_ == plan_->blocks.size()) {
    deviation_ = format("{} of {} after the last recorded block", format_bytes(bytes), name_of(tag));
  } else {
    const PlannedBlock& planned = plan_->blocks[next_];
    if (planned.tag != tag || planned.large != large || planned.bytes < bytes) {
      deviation_ = format("block {}: {} of {} where {} of {} was recorded", next_, format_bytes(bytes),
                          name_of(tag), format_bytes(planned.bytes), name_of(planned.tag));
    } else {
      Arena& arena = arenas_[large ? 1 : 0];
      std::byte* data = arena.begin + planned.offset;
      if (arena.free(data, capacity)) {
        arena.live.emplace(data, capacity);
        ++next_;
        return data;
      }
      deviation_ = format("block {}: its place is still in use", next_);
    }
  }
  leave_arena();
  return nullptr;
}

void MemoryStretch::taken(const std::byte* data, std::size_t bytes, std::size_t capacity, MemoryTag tag,
                          bool large) {
  in_use_[data] = blocks_.size();
  blocks_.push_back({bytes, capacity, tag, large, time_++, 0});
}

bool MemoryStretch::given_back(std::byte* data) {
  const auto found = in_use_.find(data);
  if (found != in_use_.end()) {
    blocks_[found->second].last = time_++;
    in_use_.erase(found);
  }
  for (Arena& arena : arenas_) {
    if (arena.contains(data)) return arena.live.erase(data) != 0;
  }
  return false;
}

ArenaPlan MemoryStretch::plan() const {
  std::vector<PlannedBlock> ended;
  {
    const std::lock_guard lock(memory_.mutex_);
    for (const PlannedBlock& block : blocks_)
      if (block.last != 0) ended.push_back(block);
  }
  return plan_arena(std::move(ended));
}

}  // namespace lode
