// Where a Memory's blocks lie: cut from large regions; neighbours that are free become one, so that steps of
// varying sizes reuse each other's memory.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <utility>

namespace lode {

// Sizes and region sizes are multiples of `unit`, and so are then all addresses within a region. Owns no
// memory.
class Heap {
 public:
  explicit Heap(std::size_t unit) : unit_(unit) {}

  std::size_t round_up(std::size_t bytes) const { return (bytes + unit_ - 1) / unit_ * unit_; }

  // The smallest free piece that is large enough, else from what was never handed out (`fresh` is set: still
  // as the system gave it), else nullptr.
  std::byte* take(std::size_t size, bool& fresh);
  void give(std::byte* data, std::size_t size);
  void add_region(std::byte* data, std::size_t bytes);
  // Takes out the regions of which nothing is handed out: unmap(data, bytes).
  void remove_free_regions(const std::function<void(std::byte*, std::size_t)>& unmap);
  // All regions, for unmapping at the end.
  const std::map<std::byte*, std::size_t>& regions() const { return regions_; }

 private:
  using Pieces = std::map<std::byte*, std::size_t>;

  Pieces::iterator erase(Pieces::iterator piece);
  std::byte* region_of(std::byte* data) const;
  void retire_fresh();

  std::size_t unit_;
  Pieces free_;                                         // by address
  std::set<std::pair<std::size_t, std::byte*>> sizes_;  // the same by size
  std::map<std::byte*, std::size_t> regions_;
  std::byte* fresh_ = nullptr;  // the end of the last region, never handed out
  std::size_t fresh_left_ = 0;
};

}  // namespace lode
