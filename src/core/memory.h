// Accounted memory: blocks cut from pooled regions with transparent huge pages, every block under a tag.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>

#include "core/heap.h"

namespace lode {

enum class MemoryTag : std::uint8_t {
  weights,        // parameters in the precision of the optimizer's arithmetic
  derived,        // copies of weights in another form (bf16, ...)
  gradients,      // gradients of parameters
  optimizer,      // optimizer state
  activations,    // what the tape holds and gradients of activations
  workspace,      // scratch of kernels
  communication,  // buffers of collectives
  data,           // token streams, batches
  program,        // everything else that is accounted
};
inline constexpr int kNumMemoryTags = 9;
std::string_view name_of(MemoryTag tag);

struct MemoryUse {
  std::array<std::size_t, kNumMemoryTags> current{};  // bytes handed out now
  std::array<std::size_t, kNumMemoryTags> peak{};     // largest `current` of each tag, each at its own moment
  std::size_t total_current = 0;
  std::size_t total_peak = 0;
  std::size_t handed_peak = 0;  // total_peak with sizes as they were rounded: what a limit must allow
  std::size_t reserved = 0;     // bytes that the system has given memory for, pooled blocks included
  std::size_t reserved_peak = 0;
};

// Peaks of two times as one: the larger of each; everything else is that of `last`.
MemoryUse larger_of(const MemoryUse& first, MemoryUse last);

class Memory;
class MemoryStretch;

// One block handed out by a Memory; returns to its pool when the last owner drops it. Contents start
// undefined.
class Storage {
 public:
  Storage(Memory* memory, std::byte* data, std::size_t bytes, std::size_t capacity, MemoryTag tag, bool zero)
      : memory_(memory), data_(data), bytes_(bytes), capacity_(capacity), tag_(tag), zero_(zero) {}
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  MemoryTag tag() const { return tag_; }
  bool was_zero() const { return zero_; }  // when it was handed out: fresh from the system

 private:
  friend class Memory;
  Memory* memory_;
  std::byte* data_;
  std::size_t bytes_, capacity_;
  MemoryTag tag_;
  bool zero_;
};

// A pool of one run. Thread-safe. Must outlive its storages.
class Memory {
 public:
  // limit: the most bytes that may be reserved at once; 0 = no limit. Beyond it pooled blocks are given back
  // to the system, then allocate throws Error(memory) with the table by tag.
  explicit Memory(std::size_t limit = 0) : limit_(limit) {}
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // At least `bytes` bytes, aligned to 64 (to 4 KiB from 256 KiB up). bytes = 0 gives a valid empty storage.
  std::shared_ptr<Storage> allocate(std::size_t bytes, MemoryTag tag);
  MemoryUse use() const;
  void reset_peak();

 private:
  friend class Storage;
  friend class MemoryStretch;
  void release(Storage& storage);
  // For a stretch, with the lock held: a piece of memory of its own, as Heap::give takes it back in parts.
  bool room_for(std::size_t bytes) const { return limit_ == 0 || handed_ + bytes <= limit_; }
  std::byte* take_arena(bool large, std::size_t size);
  void give_arena(bool large, std::byte* data, std::size_t size);
  static std::byte* map_region(std::size_t bytes);  // nullptr: the system has none
  void add_region(Heap& heap, std::size_t capacity, std::size_t usual);
  // zero: all of it is untouched.
  std::byte* take_fresh(Heap& heap, std::size_t capacity, std::size_t usual, bool& zero);
  void check_limit(std::size_t bytes);
  void drop_free();

  mutable std::mutex mutex_;
  Heap small_{64}, large_{4096};
  std::size_t handed_ = 0;  // bytes handed out, as rounded
  std::size_t limit_;
  MemoryUse use_;
  MemoryStretch* stretch_ = nullptr;  // under way
};

}  // namespace lode
