// Where a Memory's blocks lie: cut from large regions; neighbours that are free become one, so that steps of
// varying sizes reuse each other's memory. A region is an address range, far larger than what is used of it:
// a block that no free piece is large enough for takes the piece before untouched memory, and only the rest
// from that.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <utility>

namespace lode {

// Pieces of regions that are not handed out. Neighbours within a region are one piece.
class Pieces {
 public:
  // The end of the region that `data` lies in decides what is a neighbour.
  void add(std::byte* data, std::size_t size, std::byte* region_begin, std::byte* region_end);
  // From the first that is large enough, else nullptr. The lowest addresses stay in use, and what varies lies
  // together at the end: with the smallest that is large enough, pieces that fit nothing stay between blocks.
  std::byte* take(std::size_t size);
  std::size_t total() const { return total_; }
  const std::map<std::byte*, std::size_t>& all() const { return by_address_; }
  std::pair<std::byte*, std::size_t> take_largest();    // there must be one
  void take_front(std::byte* piece, std::size_t size);  // of the piece that begins there
  std::size_t size_before(const std::byte* end) const;  // of the piece that ends there, else 0
  void clear();

 private:
  using Iterator = std::map<std::byte*, std::size_t>::iterator;
  void erase(Iterator piece);
  void insert(std::byte* data, std::size_t size);
  void shorten(Iterator piece, std::size_t size);  // takes that much from its front

  std::map<std::byte*, std::size_t> by_address_;
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
  struct Fresh {
    std::byte* data = nullptr;  // nullptr: no region has that much left
    std::size_t untouched = 0;  // bytes of it, at its end, that the system has given no memory for, all zero
  };
  // Where a block would lie that needs as little new memory as possible, and then takes it.
  Fresh find_fresh(std::size_t size) const;
  void take_fresh(const Fresh& place, std::size_t size);
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
