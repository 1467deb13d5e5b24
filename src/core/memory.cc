#include "core/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>

#include "core/fail.h"

namespace lode {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kLarge = std::size_t{1} << 20;         // blocks from here on have regions of their own
constexpr std::size_t kSlab = std::size_t{8} << 20;          // smaller ones are cut from slabs of this size
constexpr std::size_t kLargestBlock = std::size_t{1} << 47;  // the address space; sizes beyond could overflow

std::size_t round_up(std::size_t n, std::size_t unit) {
  return (n + unit - 1) / unit * unit;
}

// Small blocks come in powers of two and steps of a quarter between them, so that a pool block fits many
// sizes.
std::size_t capacity_for(std::size_t bytes) {
  if (bytes >= kLarge) return round_up(bytes, kHugePage);
  const std::size_t wanted = std::max<std::size_t>(bytes, 64);
  const std::size_t step = std::max<std::size_t>(std::bit_floor(wanted) / 4, 64);
  return round_up(wanted, step);
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
  for (const Region& region : regions_) munmap(region.data, region.bytes);
}

void Memory::unmap_free_regions() {
  for (auto block = free_.lower_bound(kLarge); block != free_.end(); block = free_.erase(block)) {
    munmap(block->second, block->first);
    std::erase_if(regions_, [&](const Region& region) { return region.data == block->second; });
    use_.reserved -= block->first;
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
  regions_.push_back({data, bytes});
  use_.reserved += bytes;
  return data;
}

std::byte* Memory::take(std::size_t capacity) {
  // Best fit, with at most a quarter wasted, among the blocks given back.
  const auto found = free_.lower_bound(capacity);
  if (found != free_.end() && found->first <= capacity + capacity / 4) {
    std::byte* data = found->second;
    free_.erase(found);
    return data;
  }
  if (capacity >= kLarge) return map_region(capacity);
  if (slab_left_ < capacity) {
    slab_ = map_region(kSlab);
    slab_left_ = kSlab;
  }
  std::byte* data = slab_;
  slab_ += capacity;
  slab_left_ -= capacity;
  return data;
}

std::shared_ptr<Storage> Memory::allocate(std::size_t bytes, MemoryTag tag) {
  if (bytes > kLargestBlock) fail(ErrorKind::memory, "a block of {} cannot be had", format_bytes(bytes));
  std::size_t capacity = capacity_for(bytes);
  std::byte* data;
  bool zero;
  {
    std::lock_guard lock(mutex_);
    const auto found = free_.lower_bound(capacity);
    const bool pooled = found != free_.end() && found->first <= capacity + capacity / 4;
    if (pooled) capacity = found->first;
    zero = !pooled;
    data = take(capacity);
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
  free_.emplace(storage.capacity_, storage.data_);
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
