// Where the blocks of a recorded stretch of work lie in one arena: offsets planned from lifetimes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/memory.h"

namespace lode {

// A block that the stretch took and gave back. Times count what was taken and given back before.
struct PlannedBlock {
  std::size_t bytes = 0, capacity = 0;  // as asked, as rounded
  MemoryTag tag = MemoryTag::activations;
  bool large = false;  // lies in the arena of large blocks
  std::int64_t first = 0, last = 0;
  std::size_t offset = 0;  // in its arena
};

struct ArenaPlan {
  std::vector<PlannedBlock> blocks;  // in the order in which they were taken
  // Of small and of large blocks, as Memory keeps them apart: size of the arena, and the most bytes of its
  // blocks that lived at once, below which no plan can go.
  std::array<std::size_t, 2> size{}, needed{};

  std::size_t total() const { return size[0] + size[1]; }
  std::size_t total_needed() const { return needed[0] + needed[1]; }
};

// Fills in offsets and sizes. Blocks whose lifetimes overlap never share a byte. The best of several greedy
// orders (each block at the lowest place that is free during its whole life); finding the least is NP-hard
// (dynamic storage allocation; Garey, Johnson: Computers and Intractability, SR2).
ArenaPlan plan_arena(std::vector<PlannedBlock> blocks);

}  // namespace lode
