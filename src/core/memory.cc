#include "core/memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "core/fail.h"

namespace lode {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kLarge = std::size_t{256} << 10;  // blocks from here on do not lie between smaller ones
constexpr std::size_t kSmallRegion = std::size_t{8} << 20, kLargeRegion = std::size_t{32} << 20;
constexpr std::size_t kLargestBlock = std::size_t{1} << 47;  // the address space; sizes beyond could overflow

std::size_t round_up(std::size_t n, std::size_t unit) {
  return (n + unit - 1) / unit * unit;
}

}  // namespace

std::string_view name_of(MemoryTag tag) {
  static constexpr std::string_view kNames[kNumMemoryTags] = {"weights",       "derived",     "gradients",
                                                              "optimizer",     "activations", "workspace",
                                                              "communication", "data",        "program"};
  return kNames[static_cast<int>(tag)];
}

Storage::~Storage() {
  memory_->release(*this);
}

Memory::~Memory() {
  for (const Heap* heap : {&small_, &large_}) {
    for (const auto& [data, bytes] : heap->regions()) munmap(data, bytes);
  }
}

void Memory::unmap_free_regions() {
  for (Heap* heap : {&small_, &large_}) {
    heap->remove_free_regions([this](std::byte* data, std::size_t bytes) {
      munmap(data, bytes);
      use_.reserved -= bytes;
    });
  }
}

std::byte* Memory::map_region(std::size_t bytes) {
  if (limit_ != 0 && use_.reserved + bytes > limit_) unmap_free_regions();
  if (limit_ != 0 && use_.reserved + bytes > limit_) {
    std::string table;
    for (int t = 0; t < kNumMemoryTags; ++t) {
      if (use_.current[t] != 0) {
        table += format(", {} {}", name_of(static_cast<MemoryTag>(t)), format_bytes(use_.current[t]));
      }
    }
    fail(ErrorKind::memory, "memory limit of {} reached: {} more wanted, {} mapped{}", format_bytes(limit_),
         format_bytes(bytes), format_bytes(use_.reserved), table);
  }
  // Mapped with room to align, the rest is given back.
  const std::size_t padded = bytes + kHugePage;
  void* raw =
      mmap(nullptr, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) {
    unmap_free_regions();
    raw = mmap(nullptr, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  if (raw == MAP_FAILED) {
    fail(ErrorKind::memory, "the system has no {} of memory to give; {} are mapped", format_bytes(bytes),
         format_bytes(use_.reserved));
  }
  auto* begin = static_cast<std::byte*>(raw);
  auto* data = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(begin), kHugePage));
  if (data != begin) munmap(begin, static_cast<std::size_t>(data - begin));
  const std::size_t tail = static_cast<std::size_t>(begin + padded - (data + bytes));
  if (tail != 0) munmap(data + bytes, tail);
  madvise(data, bytes, MADV_HUGEPAGE);
  use_.reserved += bytes;
  return data;
}

// Regions are mapped larger than what is wanted now, but for a limit.
std::size_t Memory::region_for(std::size_t capacity, std::size_t usual) const {
  const std::size_t needed = round_up(capacity, kHugePage);
  if (limit_ != 0 && use_.reserved + usual > limit_) return needed;
  return std::max(needed, usual);
}

std::shared_ptr<Storage> Memory::allocate(std::size_t bytes, MemoryTag tag) {
  if (bytes > kLargestBlock) fail(ErrorKind::memory, "a block of {} cannot be had", format_bytes(bytes));
  const bool large = bytes >= kLarge;
  Heap& heap = large ? large_ : small_;
  const std::size_t capacity = heap.round_up(std::max<std::size_t>(bytes, 1));
  std::byte* data;
  bool zero;
  {
    std::lock_guard lock(mutex_);
    data = heap.take(capacity, zero);
    if (data == nullptr) {
      const std::size_t region = region_for(capacity, large ? kLargeRegion : kSmallRegion);
      std::byte* mapped = map_region(region);
      heap.add_region(mapped, region);
      data = heap.take(capacity, zero);
    }
    const int t = static_cast<int>(tag);
    use_.current[t] += bytes;
    use_.peak[t] = std::max(use_.peak[t], use_.current[t]);
    use_.total_current += bytes;
    use_.total_peak = std::max(use_.total_peak, use_.total_current);
  }
  return std::make_shared<Storage>(this, data, bytes, capacity, tag, zero);
}

void Memory::release(Storage& storage) {
  std::lock_guard lock(mutex_);
  use_.current[static_cast<int>(storage.tag_)] -= storage.bytes_;
  use_.total_current -= storage.bytes_;
  Heap& heap = storage.bytes_ >= kLarge ? large_ : small_;
  heap.give(storage.data_, storage.capacity_);
}

MemoryUse Memory::use() const {
  std::lock_guard lock(mutex_);
  return use_;
}

void Memory::reset_peak() {
  std::lock_guard lock(mutex_);
  use_.peak = use_.current;
  use_.total_peak = use_.total_current;
}

}  // namespace lode
