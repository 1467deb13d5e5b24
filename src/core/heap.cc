#include "core/heap.h"

#include <algorithm>
#include <iterator>

#include "core/fail.h"

namespace lode {

void Pieces::insert(std::byte* data, std::size_t size) {
  by_address_.emplace(data, size);
  total_ += size;
}

void Pieces::erase(Iterator piece) {
  total_ -= piece->second;
  by_address_.erase(piece);
}

void Pieces::shorten(Iterator piece, std::size_t size) {
  const auto [data, whole] = *piece;
  erase(piece);
  if (whole > size) insert(data + size, whole - size);
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
  if (size > total_) return nullptr;
  const auto found =
      std::ranges::find_if(by_address_, [size](const auto& piece) { return piece.second >= size; });
  if (found == by_address_.end()) return nullptr;
  std::byte* const data = found->first;
  shorten(found, size);
  return data;
}

std::pair<std::byte*, std::size_t> Pieces::take_largest() {
  const auto largest =
      std::ranges::max_element(by_address_, {}, [](const auto& piece) { return piece.second; });
  const std::pair<std::byte*, std::size_t> piece = *largest;
  erase(largest);
  return piece;
}

void Pieces::take_front(std::byte* piece, std::size_t size) {
  shorten(by_address_.find(piece), size);
}

std::size_t Pieces::size_before(const std::byte* end) const {
  const auto after = by_address_.lower_bound(const_cast<std::byte*>(end));
  if (after == by_address_.begin()) return 0;
  const auto piece = std::prev(after);
  return piece->first + piece->second == end ? piece->second : 0;
}

void Pieces::clear() {
  by_address_.clear();
  total_ = 0;
}

void Heap::add(Pieces& pieces, std::byte* data, std::size_t size) {
  const auto region = std::prev(regions_.upper_bound(data));
  pieces.add(data, size, region->first, region->first + region->second);
}

Heap::Fresh Heap::find_fresh(std::size_t size) const {
  Fresh best;
  for (const auto& [data, bytes] : fresh_.all()) {
    const std::size_t before = regions_.contains(data) ? 0 : std::min(size, used_.size_before(data));
    const std::size_t untouched = size - before;
    if (untouched > bytes || (best.data != nullptr && best.untouched <= untouched)) continue;
    best = {data - before, untouched};
  }
  return best;
}

void Heap::take_fresh(const Fresh& place, std::size_t size) {
  const std::size_t before = size - place.untouched;
  if (before != 0) used_.take_front(place.data, before);
  fresh_.take_front(place.data + before, place.untouched);
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
