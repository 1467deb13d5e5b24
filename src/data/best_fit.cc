#include "data/best_fit.h"

#include <algorithm>
#include <bit>

#include "core/fail.h"

namespace lode {
namespace {

// A set of integers below a bound: a tree of 64-bit words, each bit telling whether the word below it is
// non-zero.
class IntegerSet {
 public:
  explicit IntegerSet(std::size_t bound) {
    do {
      bound = (bound + 63) / 64;
      levels_.emplace_back(bound, 0);
    } while (bound > 1);
  }
  void insert(std::size_t value) {
    for (auto& level : levels_) {
      level[value / 64] |= std::uint64_t{1} << (value % 64);
      value /= 64;
    }
  }
  void erase(std::size_t value) {
    for (auto& level : levels_) {
      level[value / 64] &= ~(std::uint64_t{1} << (value % 64));
      if (level[value / 64] != 0) return;
      value /= 64;
    }
  }
  // Smallest member >= value, or -1.
  std::int64_t find_from(std::size_t value) const {
    for (std::size_t level = 0; level < levels_.size(); ++level) {
      if (value / 64 >= levels_[level].size()) return -1;
      const std::uint64_t word = levels_[level][value / 64] & (~std::uint64_t{0} << (value % 64));
      if (word != 0) {
        value = value / 64 * 64 + static_cast<std::size_t>(std::countr_zero(word));
        while (level-- > 0)
          value = value * 64 + static_cast<std::size_t>(std::countr_zero(levels_[level][value]));
        return static_cast<std::int64_t>(value);
      }
      value = value / 64 + 1;
    }
    return -1;
  }

 private:
  std::vector<std::vector<std::uint64_t>> levels_;
};

std::vector<std::int64_t> longest_first(std::span<const std::int32_t> lengths, std::int32_t capacity) {
  std::vector<std::int64_t> starts(static_cast<std::size_t>(capacity) + 2, 0);
  for (const std::int32_t length : lengths) {
    LODE_ASSERT(length >= 1 && length <= capacity);
    ++starts[static_cast<std::size_t>(capacity - length) + 1];
  }
  for (std::size_t i = 1; i < starts.size(); ++i) starts[i] += starts[i - 1];
  std::vector<std::int64_t> order(lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    auto& place = starts[static_cast<std::size_t>(capacity - lengths[i])];
    order[static_cast<std::size_t>(place++)] = static_cast<std::int64_t>(i);
  }
  return order;
}

// Open bins by their space; bins of equal space leave in the order in which they came.
class OpenBins {
 public:
  explicit OpenBins(std::int32_t capacity)
      : spaces_(static_cast<std::size_t>(capacity) + 1), queues_(static_cast<std::size_t>(capacity) + 1) {}

  void add(std::int64_t bin, std::int32_t space) {
    if (space == 0) return;
    if (next_.size() <= static_cast<std::size_t>(bin)) next_.resize(static_cast<std::size_t>(bin) + 1);
    next_[static_cast<std::size_t>(bin)] = -1;
    Queue& queue = queues_[static_cast<std::size_t>(space)];
    if (queue.head < 0) {
      queue.head = bin;
      spaces_.insert(static_cast<std::size_t>(space));
    } else {
      next_[static_cast<std::size_t>(queue.tail)] = bin;
    }
    queue.tail = bin;
  }
  // Takes the best bin for `length` out; its space in `space`. -1 when none fits.
  std::int64_t take(std::int32_t length, std::int32_t& space) {
    const std::int64_t found = spaces_.find_from(static_cast<std::size_t>(length));
    if (found < 0) return -1;
    Queue& queue = queues_[static_cast<std::size_t>(found)];
    const std::int64_t bin = queue.head;
    queue.head = next_[static_cast<std::size_t>(bin)];
    if (queue.head < 0) spaces_.erase(static_cast<std::size_t>(found));
    space = static_cast<std::int32_t>(found);
    return bin;
  }

 private:
  struct Queue {
    std::int64_t head = -1, tail = -1;
  };
  IntegerSet spaces_;
  std::vector<Queue> queues_;
  std::vector<std::int64_t> next_;
};

}  // namespace

Bins pack_best_fit(std::span<const std::int32_t> lengths, std::int32_t capacity) {
  const std::vector<std::int64_t> order = longest_first(lengths, capacity);
  OpenBins open(capacity);
  std::vector<std::int64_t> bin_of(lengths.size());
  std::int64_t num_bins = 0;
  for (const std::int64_t item : order) {
    const std::int32_t length = lengths[static_cast<std::size_t>(item)];
    std::int32_t space = capacity;
    std::int64_t bin = open.take(length, space);
    if (bin < 0) bin = num_bins++;
    bin_of[static_cast<std::size_t>(item)] = bin;
    open.add(bin, space - length);
  }
  Bins bins;
  bins.begins.assign(static_cast<std::size_t>(num_bins) + 1, 0);
  for (const std::int64_t bin : bin_of) ++bins.begins[static_cast<std::size_t>(bin) + 1];
  for (std::size_t b = 1; b < bins.begins.size(); ++b) bins.begins[b] += bins.begins[b - 1];
  std::vector<std::int64_t> place(bins.begins.begin(), bins.begins.end() - 1);
  bins.items.resize(lengths.size());
  for (const std::int64_t item : order) {
    auto& next = place[static_cast<std::size_t>(bin_of[static_cast<std::size_t>(item)])];
    bins.items[static_cast<std::size_t>(next++)] = item;
  }
  return bins;
}

}  // namespace lode
