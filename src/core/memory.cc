#include "core/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>

#include "core/fail.h"
#include "core/memory_stretch.h"

namespace lode {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kLarge = std::size_t{256} << 10;  // blocks from here on do not lie between smaller ones
// Addresses that a region takes: they cost nothing. Where they are limited, or counted as memory, regions
// have the usual sizes below.
constexpr std::size_t kRegion = std::size_t{64} << 30;
constexpr std::size_t kSmallRegion = std::size_t{8} << 20, kLargeRegion = std::size_t{32} << 20;
constexpr std::size_t kLargestBlock = std::size_t{1} << 47;  // the address space; sizes beyond could overflow

std::size_t round_up(std::size_t n, std::size_t unit) {
  return (n + unit - 1) / unit * unit;
}

// Pages that lie wholly in a piece go back to the system; what is left of it at both ends is cleared.
void drop_pages(std::byte* data, std::size_t size) {
  constexpr std::size_t kPage = 4096;
  std::byte* end = data + size;
  auto* first = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(data), kPage));
  auto* last = reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(end) / kPage * kPage);
  if (first >= last || madvise(first, static_cast<std::size_t>(last - first), MADV_DONTNEED) != 0) {
    std::memset(data, 0, size);
    return;
  }
  std::memset(data, 0, static_cast<std::size_t>(first - data));
  std::memset(last, 0, static_cast<std::size_t>(end - last));
}

}  // namespace

std::string_view name_of(MemoryTag tag) {
  static constexpr std::string_view kNames[kNumMemoryTags] = {"weights",       "derived",     "gradients",
                                                              "optimizer",     "activations", "workspace",
                                                              "communication", "data",        "program"};
  return kNames[static_cast<int>(tag)];
}

MemoryUse larger_of(const MemoryUse& first, MemoryUse last) {
  for (std::size_t t = 0; t < last.peak.size(); ++t) last.peak[t] = std::max(last.peak[t], first.peak[t]);
  last.total_peak = std::max(last.total_peak, first.total_peak);
  last.handed_peak = std::max(last.handed_peak, first.handed_peak);
  last.reserved_peak = std::max(last.reserved_peak, first.reserved_peak);
  return last;
}

Storage::~Storage() {
  memory_->release(*this);
}

Memory::~Memory() {
  for (const Heap* heap : {&small_, &large_}) {
    for (const auto& [data, bytes] : heap->regions()) munmap(data, bytes);
  }
}

void Memory::drop_free() {
  for (Heap* heap : {&small_, &large_}) heap->drop_free(drop_pages);
  use_.reserved = small_.used() + large_.used();
}

void Memory::check_limit(std::size_t bytes) {
  if (limit_ == 0 || use_.reserved + bytes <= limit_) return;
  // No more than is needed: the next owner of a piece given back has to take its memory anew.
  for (Heap* heap : {&large_, &small_}) {
    if (use_.reserved + bytes > limit_) heap->drop_largest(use_.reserved + bytes - limit_, drop_pages);
    use_.reserved = small_.used() + large_.used();
  }
  if (use_.reserved + bytes <= limit_) return;
  std::string table;
  for (int t = 0; t < kNumMemoryTags; ++t) {
    if (use_.current[t] != 0) {
      table += format(", {} {}", name_of(static_cast<MemoryTag>(t)), format_bytes(use_.current[t]));
    }
  }
  fail(ErrorKind::memory, "memory limit of {} reached: {} more wanted, {} mapped{}", format_bytes(limit_),
       format_bytes(bytes), format_bytes(use_.reserved), table);
}

std::byte* Memory::map_region(std::size_t bytes) {
  // Mapped with room to align, the rest is given back.
  const std::size_t padded = bytes + kHugePage;
  void* const raw =
      mmap(nullptr, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(raw);
  auto* data = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(begin), kHugePage));
  if (data != begin) munmap(begin, static_cast<std::size_t>(data - begin));
  const std::size_t tail = static_cast<std::size_t>(begin + padded - (data + bytes));
  if (tail != 0) munmap(data + bytes, tail);
  madvise(data, bytes, MADV_HUGEPAGE);
  return data;
}

void Memory::add_region(Heap& heap, std::size_t capacity, std::size_t usual) {
  rlimit addresses{};
  const bool free_addresses = getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur == RLIM_INFINITY;
  // Of the usual sizes, a large block has a region of its own: what is left of others stays for smaller
  // blocks.
  const std::size_t needed = capacity > usual / 4 ? round_up(capacity, kHugePage) : usual;
  std::size_t bytes = std::max(needed, kRegion);
  std::byte* data = free_addresses ? map_region(bytes) : nullptr;
  if (data == nullptr) data = map_region(bytes = needed);
  if (data == nullptr) {
    drop_free();
    data = map_region(bytes);
  }
  if (data == nullptr) {
    fail(ErrorKind::memory, "the system has no {} of memory to give; {} are mapped", format_bytes(bytes),
         format_bytes(use_.reserved));
  }
  heap.add_region(data, bytes);
}

std::byte* Memory::take_fresh(Heap& heap, std::size_t capacity, std::size_t usual, bool& zero) {
  Heap::Fresh place = heap.find_fresh(capacity);
  if (place.data == nullptr || (limit_ != 0 && use_.reserved + place.untouched > limit_)) {
    // For all of it: what goes back to the system may be the piece that would have been taken along.
    check_limit(capacity);
    place = heap.find_fresh(capacity);
  }
  if (place.data == nullptr) {
    add_region(heap, capacity, usual);
    place = heap.find_fresh(capacity);
  }
  heap.take_fresh(place, capacity);
  zero = place.untouched == capacity;
  use_.reserved = small_.used() + large_.used();
  use_.reserved_peak = std::max(use_.reserved_peak, use_.reserved);
  return place.data;
}

std::shared_ptr<Storage> Memory::allocate(std::size_t bytes, MemoryTag tag) {
  if (bytes > kLargestBlock) fail(ErrorKind::memory, "a block of {} cannot be had", format_bytes(bytes));
  const bool large = bytes >= kLarge;
  Heap& heap = large ? large_ : small_;
  const std::size_t capacity = heap.round_up(std::max<std::size_t>(bytes, 1));
  std::byte* data;
  bool zero = false;
  {
    std::lock_guard lock(mutex_);
    const bool follows = stretch_ != nullptr && stretch_->concerns();
    data = follows ? stretch_->place(bytes, capacity, tag, large) : nullptr;
    const bool planned = data != nullptr;
    if (!planned) data = heap.take(capacity);
    if (data == nullptr) data = take_fresh(heap, capacity, large ? kLargeRegion : kSmallRegion, zero);
    if (follows) stretch_->taken(data, bytes, capacity, tag, large);
    const int t = static_cast<int>(tag);
    use_.current[t] += bytes;
    use_.peak[t] = std::max(use_.peak[t], use_.current[t]);
    use_.total_current += bytes;
    use_.total_peak = std::max(use_.total_peak, use_.total_current);
    if (!planned) handed_ += capacity;
    use_.handed_peak = std::max(use_.handed_peak, handed_);
  }
  return std::make_shared<Storage>(this, data, bytes, capacity, tag, zero);
}

void Memory::release(Storage& storage) {
  std::lock_guard lock(mutex_);
  use_.current[static_cast<int>(storage.tag_)] -= storage.bytes_;
  use_.total_current -= storage.bytes_;
  if (stretch_ != nullptr && stretch_->given_back(storage.data_)) return;
  handed_ -= storage.capacity_;
  Heap& heap = storage.bytes_ >= kLarge ? large_ : small_;
  heap.give(storage.data_, storage.capacity_);
}

std::byte* Memory::take_arena(bool large, std::size_t size) {
  Heap& heap = large ? large_ : small_;
  std::byte* data = heap.take(size);
  if (data == nullptr) {
    // Free pieces that are too small for it would be held beside it.
    drop_free();
    bool zero;
    data = take_fresh(heap, size, large ? kLargeRegion : kSmallRegion, zero);
  }
  handed_ += size;
  use_.handed_peak = std::max(use_.handed_peak, handed_);
  return data;
}

void Memory::give_arena(bool large, std::byte* data, std::size_t size) {
  (large ? large_ : small_).give(data, size);
  handed_ -= size;
}

MemoryUse Memory::use() const {
  std::lock_guard lock(mutex_);
  return use_;
}

void Memory::reset_peak() {
  std::lock_guard lock(mutex_);
  use_.peak = use_.current;
  use_.total_peak = use_.total_current;
  use_.handed_peak = handed_;
  use_.reserved_peak = use_.reserved;
}

}  // namespace lode
