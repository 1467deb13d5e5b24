#include "core/heap.h"

#include <iterator>

#include "core/fail.h"

namespace lode {

Heap::Pieces::iterator Heap::erase(Pieces::iterator piece) {
  sizes_.erase({piece->second, piece->first});
  return free_.erase(piece);
}

std::byte* Heap::region_of(std::byte* data) const {
  return std::prev(regions_.upper_bound(data))->first;
}

std::byte* Heap::take(std::size_t size, bool& fresh) {
  fresh = false;
  const auto found = sizes_.lower_bound({size, nullptr});
  if (found != sizes_.end()) {
    const auto [whole, data] = *found;
    erase(free_.find(data));
    if (whole > size) {
      free_.emplace(data + size, whole - size);
      sizes_.emplace(whole - size, data + size);
    }
    return data;
  }
  if (fresh_left_ < size) return nullptr;
  fresh = true;
  std::byte* data = fresh_;
  fresh_ += size;
  fresh_left_ -= size;
  return data;
}

void Heap::give(std::byte* data, std::size_t size) {
  std::byte* region = region_of(data);
  auto next = free_.lower_bound(data);
  if (next != free_.end() && next->first == data + size && region_of(next->first) == region) {
    size += next->second;
    next = erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == data && region_of(before->first) == region) {
      data = before->first;
      size += before->second;
      erase(before);
    }
  }
  free_.emplace(data, size);
  sizes_.emplace(size, data);
}

void Heap::retire_fresh() {
  if (fresh_left_ == 0) return;
  std::byte* data = fresh_;
  const std::size_t size = fresh_left_;
  fresh_left_ = 0;
  give(data, size);
}

void Heap::add_region(std::byte* data, std::size_t bytes) {
  LODE_ASSERT(bytes % unit_ == 0);
  retire_fresh();
  regions_.emplace(data, bytes);
  fresh_ = data;
  fresh_left_ = bytes;
}

void Heap::remove_free_regions(const std::function<void(std::byte*, std::size_t)>& unmap) {
  retire_fresh();
  for (auto piece = free_.begin(); piece != free_.end();) {
    const auto region = regions_.find(piece->first);
    if (region == regions_.end() || region->second != piece->second) {
      ++piece;
      continue;
    }
    unmap(region->first, region->second);
    regions_.erase(region);
    piece = erase(piece);
  }
}

}  // namespace lode
