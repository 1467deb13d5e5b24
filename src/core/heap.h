// Where a Memory's blocks lie: cut from large regions; neighbours that are free become one, so that steps of
// varying sizes reuse each other's memory.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <utility>

namespace lode {

// Pieces of regions that are not handed out. Neighbours within a region are one piece.
class Pieces {
 public:
  // The end of the region that `data` lies in decides what is a neighbour.
  void add(std::byte* data, std::size_t size, std::byte* region_begin, std::byte* region_end);
  std::byte* take(std::size_t size);  // from the smallest that is large enough, else nullptr
  std::size_t total() const { return total_; }
  const std::map<std::byte*, std::size_t>& all() const { return by_address_; }
  std::pair<std::byte*, std::size_t> take_largest();  // there must be one
  void clear();

 private:
  void erase(std::map<std::byte*, std::size_t>::iterator piece);
  void insert(std::byte* data, std::size_t size);

  std::map<std::byte*, std::size_t> by_address_;
  std::set<std::pair<std::size_t, std::byte*>> by_size_;
  std::size_t total_ = 0;
};

// Sizes and region sizes are multiples of `unit`, and so are then all offsets within a region. Owns no
// memory.
class Heap {
 public:
  explicit Heap(std::size_t unit) : unit_(unit) {}

  std::size_t round_up(std::size_t bytes) const { return (bytes + unit_ - 1) / unit_ * unit_; }

  // From what was given back, else nullptr.
  std::byte* take(std::size_t size) { return used_.take(size); }
  // From what the system has given no memory for, all zero; else nullptr.
  std::byte* take_fresh(std::size_t size) { return fresh_.take(size); }
  void give(std::byte* data, std::size_t size);
  void add_region(std::byte* data, std::size_t bytes);
  // drop(data, bytes) gives the memory of a piece back to the system and leaves it all zero; done to all that
  // was given back.
  void drop_free(const std::function<void(std::byte*, std::size_t)>& drop);
  // The same to the largest of it, of `bytes` together or all that there is.
  void drop_largest(std::size_t bytes, const std::function<void(std::byte*, std::size_t)>& drop);
  // Bytes that the system has given memory for.
  std::size_t used() const { return total_ - fresh_.total(); }
  const std::map<std::byte*, std::size_t>& regions() const { return regions_; }

 private:
  void add(Pieces& pieces, std::byte* data, std::size_t size);

  std::size_t unit_, total_ = 0;
  Pieces used_, fresh_;
  std::map<std::byte*, std::size_t> regions_;
};

}  // namespace lode
