#include "core/memory_stretch.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>

namespace lode {
namespace {

using Block = std::shared_ptr<Storage>;

Block take(Memory& memory, std::size_t bytes, MemoryTag tag = MemoryTag::activations) {
  Block block = memory.allocate(bytes, tag);
  std::memset(block->data(), 0x5a, bytes);
  return block;
}

// A forward that keeps what its backward frees in reverse, each with a temporary beside it.
void step(Memory& memory, std::size_t scale = 1000) {
  std::vector<Block> kept;
  for (std::size_t i = 1; i <= 20; ++i) {
    const Block temporary = take(memory, i * scale * 7);
    kept.push_back(take(memory, i * scale * 3));
  }
  while (!kept.empty()) {
    const Block gradient = take(memory, kept.back()->bytes());
    kept.pop_back();
  }
}

ArenaPlan recorded(Memory& memory, std::size_t scale = 1000) {
  const MemoryStretch stretch(memory, nullptr);
  step(memory, scale);
  return stretch.plan();
}

TEST(ArenaPlan, BlocksThatLiveTogetherShareNoByte) {
  std::mt19937 random(1);
  std::vector<PlannedBlock> blocks;
  for (std::int64_t i = 0; i < 300; ++i) {
    const auto bytes = std::size_t{64} * (1 + random() % 100);
    const auto first = static_cast<std::int64_t>(random() % 1000);
    blocks.push_back({bytes, bytes, MemoryTag::activations, random() % 2 == 0, first,
                      first + 1 + static_cast<std::int64_t>(random() % 300)});
  }
  const ArenaPlan plan = plan_arena(blocks);
  for (const PlannedBlock& a : plan.blocks) {
    EXPECT_LE(a.offset + a.capacity, plan.size[a.large ? 1 : 0]);
    for (const PlannedBlock& b : plan.blocks) {
      const bool together = &a != &b && a.large == b.large && a.first < b.last && b.first < a.last;
      if (!together) continue;
      EXPECT_TRUE(a.offset + a.capacity <= b.offset || b.offset + b.capacity <= a.offset);
    }
  }
  for (const std::size_t i : {0, 1}) {
    EXPECT_GE(plan.size[i], plan.needed[i]);
    EXPECT_LT(static_cast<double>(plan.size[i]), 1.25 * static_cast<double>(plan.needed[i]));
  }
}

TEST(ArenaPlan, AStackNeedsNoMoreThanItHolds) {
  Memory memory;
  const ArenaPlan plan = recorded(memory);
  EXPECT_EQ(plan.blocks.size(), 60u);
  EXPECT_EQ(plan.total(), plan.total_needed());
}

TEST(MemoryStretch, ReplaysWithoutAllocating) {
  Memory memory, dynamic;
  const ArenaPlan plan = recorded(memory);
  step(dynamic);
  memory.reset_peak();
  for (int i = 0; i < 3; ++i) {
    const MemoryStretch stretch(memory, &plan);
    const std::size_t reserved = memory.use().reserved;
    step(memory);
    EXPECT_TRUE(stretch.replays()) << stretch.deviation();
    EXPECT_EQ(stretch.served(), 60u);
    EXPECT_EQ(memory.use().reserved, reserved);
  }
  EXPECT_EQ(memory.use().peak, dynamic.use().peak) << "blocks are counted as ever";
  EXPECT_LE(memory.use().handed_peak, dynamic.use().handed_peak);
  EXPECT_EQ(memory.use().total_current, 0u);
}

TEST(MemoryStretch, SmallerBlocksFitLargerOnesDoNot) {
  Memory memory;
  const ArenaPlan plan = recorded(memory);
  {
    const MemoryStretch stretch(memory, &plan);
    step(memory, 990);
    EXPECT_TRUE(stretch.replays()) << stretch.deviation();
  }
  const MemoryStretch stretch(memory, &plan);
  step(memory, 1010);
  EXPECT_FALSE(stretch.replays());
  EXPECT_NE(stretch.deviation().find("block 0: 6.90 KiB of activations where 6.84 KiB"), std::string::npos)
      << stretch.deviation();
  EXPECT_EQ(stretch.plan().blocks.size(), 60u) << "it was recorded again";
}

TEST(MemoryStretch, BlocksMayLiveOnBeyondTheirPlanAndTheStretch) {
  Memory memory;
  ArenaPlan plan;
  {
    const MemoryStretch stretch(memory, nullptr);
    take(memory, 1 << 20);
    take(memory, 1 << 20);
    plan = stretch.plan();
  }
  EXPECT_EQ(plan.total(), std::size_t{1} << 20);
  Block first, second;
  {
    const MemoryStretch stretch(memory, &plan);
    first = take(memory, 1 << 20);
    second = take(memory, 1 << 20);  // its place is the first one's
    EXPECT_NE(stretch.deviation().find("still in use"), std::string::npos) << stretch.deviation();
    EXPECT_TRUE(stretch.plan().blocks.empty());
  }
  std::memset(first->data(), 1, first->bytes());
  std::memset(second->data(), 2, second->bytes());
  const Block third = take(memory, 1 << 20);
  EXPECT_EQ(first->data()[(1 << 20) - 1], std::byte{1});
  EXPECT_EQ(second->data()[0], std::byte{2});
  first.reset(), second.reset();
  EXPECT_EQ(memory.use().total_current, std::size_t{1} << 20);
}

TEST(MemoryStretch, OtherThreadsAreNotPartOfIt) {
  Memory memory;
  const MemoryStretch stretch(memory, nullptr);
  std::thread([&] { take(memory, 5000); }).join();
  take(memory, 5000);
  EXPECT_EQ(stretch.plan().blocks.size(), 1u);
}

TEST(MemoryStretch, AnArenaBeyondTheLimitIsNotTaken) {
  Memory memory(8 << 20);
  ArenaPlan plan;
  plan.blocks.push_back({6 << 20, 6 << 20, MemoryTag::activations, true, 0, 1});
  plan.size[1] = 6 << 20;
  const Block held = take(memory, 4 << 20, MemoryTag::weights);
  const MemoryStretch stretch(memory, &plan);
  EXPECT_FALSE(stretch.replays());
  EXPECT_NE(stretch.deviation().find("memory_limit"), std::string::npos);
  EXPECT_NE(take(memory, 2 << 20), nullptr);
}

}  // namespace
}  // namespace lode
