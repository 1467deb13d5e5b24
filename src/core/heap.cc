#include "core/heap.h"

#include <algorithm>
#include <iterator>

#include "core/fail.h"

namespace lode {

void Pieces::insert(std::byte* data, std::size_t size) {
  by_address_.emplace(data, size);
  by_size_.emplace(size, data);
  total_ += size;
}

void Pieces::erase(std::map<std::byte*, std::size_t>::iterator piece) {
  by_size_.erase({piece->second, piece->first});
  total_ -= piece->second;
  by_address_.erase(piece);
}

void Pieces::add(std::byte* data, std::size_t size, std::byte* region_begin, std::byte* region_end) {
  const auto next = by_address_.lower_bound(data);
  if (next != by_address_.end() && next->first == data + size && next->first != region_end) {
    size += next->second;
    erase(next);
  }
  const auto after = by_address_.lower_bound(data);
  if (after != by_address_.begin() && data != region_begin) {
    const auto before = std::prev(after);
    if (before->first + before->second == data) {
      data = before->first;
      size += before->second;
      erase(before);
    }
  }
  insert(data, size);
}

std::byte* Pieces::take(std::size_t size) {
  const auto found = by_size_.lower_bound({size, nullptr});
  if (found == by_size_.end()) return nullptr;
  const auto [whole, data] = *found;
  erase(by_address_.find(data));
  if (whole > size) insert(data + size, whole - size);
  return data;
}

std::pair<std::byte*, std::size_t> Pieces::take_largest() {
  const auto [size, data] = *by_size_.rbegin();
  erase(by_address_.find(data));
  return {data, size};
}

void Pieces::clear() {
  by_address_.clear();
  by_size_.clear();
  total_ = 0;
}

void Heap::add(Pieces& pieces, std::byte* data, std::size_t size) {
  const auto region = std::prev(regions_.upper_bound(data));
  pieces.add(data, size, region->first, region->first + region->second);
}

void Heap::give(std::byte* data, std::size_t size) {
  add(used_, data, size);
}

void Heap::add_region(std::byte* data, std::size_t bytes) {
  LODE_ASSERT(bytes % unit_ == 0);
  regions_.emplace(data, bytes);
  total_ += bytes;
  add(fresh_, data, bytes);
}

void Heap::drop_largest(std::size_t bytes, const std::function<void(std::byte*, std::size_t)>& drop) {
  bytes = std::min(bytes, used_.total());
  for (std::size_t dropped = 0; dropped < bytes;) {
    auto [data, size] = used_.take_largest();
    if (size > bytes - dropped) {  // the rest of it stays
      const std::size_t part = round_up(bytes - dropped);
      if (part < size) add(used_, data + part, size - part);
      size = std::min(size, part);
    }
    drop(data, size);
    add(fresh_, data, size);
    dropped += size;
  }
}

void Heap::drop_free(const std::function<void(std::byte*, std::size_t)>& drop) {
  for (const auto& [data, size] : used_.all()) {
    drop(data, size);
    add(fresh_, data, size);
  }
  used_.clear();
}

}  // namespace lode
