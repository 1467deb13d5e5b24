#include "data/best_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/rng.h"

namespace lode {
namespace {

using Groups = std::vector<std::vector<std::int32_t>>;

Groups lengths_by_bin(std::span<const std::int32_t> lengths, const Bins& bins) {
  Groups groups;
  for (std::int64_t b = 0; b < bins.size(); ++b) {
    auto& group = groups.emplace_back();
    for (auto i = bins.begins[static_cast<std::size_t>(b)]; i < bins.begins[static_cast<std::size_t>(b) + 1];
         ++i) {
      group.push_back(lengths[static_cast<std::size_t>(bins.items[static_cast<std::size_t>(i)])]);
    }
  }
  return groups;
}

Groups pack(std::vector<std::int32_t> lengths, std::int32_t capacity) {
  return lengths_by_bin(lengths, pack_best_fit(lengths, capacity));
}

// The rule, word for word, in quadratic time. Gives the bin of each item.
Bins pack_slowly(std::span<const std::int32_t> lengths, std::int32_t capacity) {
  std::vector<std::int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](std::int64_t i) { return lengths[static_cast<std::size_t>(i)]; });
  struct Bin {
    std::int32_t space;
    std::int64_t since;  // when it reached that space
    std::vector<std::int64_t> items;
  };
  std::vector<Bin> bins;
  std::int64_t time = 0;
  for (const std::int64_t item : order) {
    const std::int32_t length = lengths[static_cast<std::size_t>(item)];
    Bin* best = nullptr;
    for (Bin& bin : bins) {
      if (bin.space < length) continue;
      if (!best || bin.space < best->space || (bin.space == best->space && bin.since < best->since))
        best = &bin;
    }
    if (!best) best = &bins.emplace_back(Bin{capacity, 0, {}});
    best->space -= length;
    best->since = ++time;
    best->items.push_back(item);
  }
  Bins result{{0}, {}};
  for (const Bin& bin : bins) {
    result.items.insert(result.items.end(), bin.items.begin(), bin.items.end());
    result.begins.push_back(static_cast<std::int64_t>(result.items.size()));
  }
  return result;
}

TEST(BestFit, Examples) {
  EXPECT_EQ(pack({8, 6, 4, 3, 2, 2}, 10), (Groups{{8, 2}, {6, 4}, {3, 2}}));
  EXPECT_EQ(pack({2, 3, 2, 8, 4, 6}, 10), (Groups{{8, 2}, {6, 4}, {3, 2}}));
  EXPECT_EQ(pack({}, 10), Groups());
  EXPECT_EQ(pack({10}, 10), (Groups{{10}}));
  EXPECT_EQ(pack({1, 1, 1}, 1), (Groups{{1}, {1}, {1}}));
  EXPECT_EQ(pack({5, 5, 5}, 5), (Groups{{5}, {5}, {5}}));
}

TEST(BestFit, EqualSpacesServeFirstComeFirst) {
  const std::vector<std::int32_t> lengths{7, 7, 3, 3};
  const Bins bins = pack_best_fit(lengths, 10);
  EXPECT_EQ(bins.items, (std::vector<std::int64_t>{0, 2, 1, 3}));
}

TEST(BestFit, EqualsTheSlowRule) {
  Rng rng(5, "packing");
  for (int round = 0; round < 400; ++round) {
    const auto capacity = static_cast<std::int32_t>(1 + rng.below(round % 3 == 0 ? 5000 : 70));
    std::vector<std::int32_t> lengths(rng.below(120));
    for (auto& length : lengths) {
      length = static_cast<std::int32_t>(1 + rng.below(static_cast<std::uint64_t>(capacity)));
      if (rng.below(2) == 0) length = (length + 3) / 4;
    }
    const Bins bins = pack_best_fit(lengths, capacity), slow = pack_slowly(lengths, capacity);
    ASSERT_EQ(bins.begins, slow.begins);
    ASSERT_EQ(bins.items, slow.items);
  }
}

TEST(BestFit, KeepsEveryItemAndStaysNearTheBound) {
  Rng rng(6, "packing");
  std::vector<std::int32_t> lengths(20000);
  for (auto& length : lengths)
    length = static_cast<std::int32_t>(1 + rng.below(2048) * rng.below(2048) / 2048);
  const Bins bins = pack_best_fit(lengths, 2048);
  std::vector<int> seen(lengths.size(), 0);
  for (const auto& group : lengths_by_bin(lengths, bins))
    EXPECT_LE(std::accumulate(group.begin(), group.end(), 0), 2048);
  for (const std::int64_t item : bins.items) ++seen[static_cast<std::size_t>(item)];
  EXPECT_TRUE(std::ranges::all_of(seen, [](int n) { return n == 1; }));
  const auto total = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  const std::int64_t at_least = (total + 2047) / 2048;
  EXPECT_LE(bins.size(), at_least * 11 / 9 + 1);
}

}  // namespace
}  // namespace lode
