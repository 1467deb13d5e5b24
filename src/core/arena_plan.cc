#include "core/arena_plan.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace lode {
namespace {

using Order = std::function<bool(const PlannedBlock&, const PlannedBlock&)>;

bool overlap(const PlannedBlock& a, const PlannedBlock& b) {
  return a.first < b.last && b.first < a.last;
}

// Places the blocks in this order; the size of the arena.
std::size_t place(std::vector<PlannedBlock*> blocks, const Order& before) {
  std::ranges::stable_sort(blocks, [&](const auto* a, const auto* b) { return before(*a, *b); });
  std::vector<const PlannedBlock*> placed;  // by offset
  std::size_t size = 0;
  for (PlannedBlock* block : blocks) {
    std::size_t offset = 0;
    for (const PlannedBlock* other : placed) {
      if (!overlap(*block, *other)) continue;
      if (other->offset >= offset + block->capacity) break;
      offset = std::max(offset, other->offset + other->capacity);
    }
    block->offset = offset;
    const auto at = std::ranges::upper_bound(placed, offset, {}, &PlannedBlock::offset);
    placed.insert(at, block);
    size = std::max(size, offset + block->capacity);
  }
  return size;
}

std::size_t most_at_once(const std::vector<PlannedBlock*>& blocks) {
  std::vector<std::pair<std::int64_t, std::int64_t>> changes;
  for (const PlannedBlock* block : blocks) {
    changes.emplace_back(block->first, static_cast<std::int64_t>(block->capacity));
    changes.emplace_back(block->last, -static_cast<std::int64_t>(block->capacity));
  }
  std::ranges::sort(changes);
  std::int64_t now = 0, most = 0;
  for (const auto& [time, change] : changes) most = std::max(most, now += change);
  return static_cast<std::size_t>(most);
}

const std::vector<Order>& orders() {
  static const auto life = [](const PlannedBlock& b) { return b.last - b.first; };
  static const std::vector<Order> list = {
      [](const PlannedBlock& a, const PlannedBlock& b) { return life(a) > life(b); },
      [](const PlannedBlock& a, const PlannedBlock& b) { return a.capacity > b.capacity; },
      [](const PlannedBlock& a, const PlannedBlock& b) {
        return static_cast<double>(a.capacity) * static_cast<double>(life(a)) >
               static_cast<double>(b.capacity) * static_cast<double>(life(b));
      },
      [](const PlannedBlock& a, const PlannedBlock& b) { return a.first < b.first; },
      [](const PlannedBlock& a, const PlannedBlock& b) { return a.last > b.last; },
  };
  return list;
}

}  // namespace

ArenaPlan plan_arena(std::vector<PlannedBlock> blocks) {
  ArenaPlan plan;
  plan.blocks = std::move(blocks);
  for (const std::size_t arena : {0, 1}) {
    std::vector<PlannedBlock*> mine;
    for (PlannedBlock& block : plan.blocks)
      if (block.large == (arena == 1)) mine.push_back(&block);
    plan.needed[arena] = most_at_once(mine);
    std::size_t best = SIZE_MAX;
    std::vector<std::size_t> offsets(mine.size());
    for (const Order& order : orders()) {
      const std::size_t size = place(mine, order);
      if (size >= best) continue;
      best = size;
      for (std::size_t i = 0; i < mine.size(); ++i) offsets[i] = mine[i]->offset;
      if (best == plan.needed[arena]) break;
    }
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i]->offset = offsets[i];
    plan.size[arena] = mine.empty() ? 0 : best;
  }
  return plan;
}

}  // namespace lode
