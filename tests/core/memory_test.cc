#include "core/memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "core/tensor.h"
#include "temp_folder.h"

namespace lode {
namespace {

std::size_t of(const MemoryUse& use, MemoryTag tag) {
  return use.current[static_cast<int>(tag)];
}

TEST(Memory, AccountsByTag) {
  Memory memory;
  auto a = memory.allocate(1000, MemoryTag::weights);
  auto b = memory.allocate(3 << 20, MemoryTag::activations);
  EXPECT_EQ(of(memory.use(), MemoryTag::weights), 1000u);
  EXPECT_EQ(memory.use().total_current, 1000u + (3 << 20));
  b.reset();
  EXPECT_EQ(of(memory.use(), MemoryTag::activations), 0u);
  EXPECT_EQ(memory.use().peak[static_cast<int>(MemoryTag::activations)], std::size_t{3} << 20);
  EXPECT_EQ(memory.use().total_peak, 1000u + (3 << 20));
  memory.reset_peak();
  EXPECT_EQ(memory.use().total_peak, 1000u);
  EXPECT_GE(memory.use().reserved, std::size_t{3} << 20);
}

TEST(Memory, AlignsAndReuses) {
  Memory memory;
  std::vector<std::shared_ptr<Storage>> blocks;
  for (const std::size_t bytes : {0u, 1u, 63u, 65u, 4097u, 1048575u, 1048576u, 5000000u}) {
    auto block = memory.allocate(bytes, MemoryTag::program);
    const auto address = reinterpret_cast<std::uintptr_t>(block->data());
    EXPECT_EQ(address % (bytes >= (256u << 10) ? 4096u : 64u), 0u) << bytes;
    std::memset(block->data(), 0x5a, bytes);
    blocks.push_back(std::move(block));
  }
  blocks.clear();
  const std::size_t reserved = memory.use().reserved;
  for (int round = 0; round < 100; ++round) {
    auto large = memory.allocate(5000000, MemoryTag::workspace),
         small = memory.allocate(4000, MemoryTag::workspace);
  }
  EXPECT_EQ(memory.use().reserved, reserved);
}

TEST(Memory, LimitIsAnErrorWithTheTable) {
  Memory memory(8 << 20);
  auto held = memory.allocate(4 << 20, MemoryTag::optimizer);
  const auto too_much = [&] { memory.allocate(6 << 20, MemoryTag::weights); };
  EXPECT_EQ(kind_of(too_much), ErrorKind::memory);
  EXPECT_NE(error_of(too_much).find("optimizer 4.00 MiB"), std::string::npos) << error_of(too_much);
  EXPECT_EQ(of(memory.use(), MemoryTag::weights), 0u);
  EXPECT_EQ(kind_of([&] { memory.allocate(SIZE_MAX, MemoryTag::weights); }), ErrorKind::memory);
  EXPECT_EQ(kind_of([&] { memory.allocate(std::size_t{1} << 62, MemoryTag::weights); }), ErrorKind::memory);
}

TEST(Memory, PooledBlocksOfOtherSizesDoNotExhaustTheLimit) {
  Memory memory(16 << 20);
  for (std::size_t mib = 2; mib <= 12; mib += 2) {
    EXPECT_NO_THROW(memory.allocate(mib << 20, MemoryTag::activations)) << mib;
  }
}

// Steps of varying length: what one frees serves the next, whatever the sizes of its blocks.
TEST(Memory, VaryingSizesReuseEachOther) {
  Memory memory;
  std::vector<std::shared_ptr<Storage>> blocks;
  const auto step = [&](std::size_t tokens) {
    for (const std::size_t width : {1152, 1920, 6144, 3072, 64})
      for (int layer = 0; layer < 20; ++layer)
        blocks.push_back(memory.allocate(tokens * width, MemoryTag::activations));
    while (blocks.size() > 1) blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(blocks.size() / 2));
    blocks.clear();
  };
  step(1500);
  const std::size_t longest = memory.use().reserved, used = memory.use().total_peak;
  EXPECT_LE(longest, used + used / 10);
  for (const std::size_t tokens : {300, 1400, 777, 1111, 64, 1500, 903}) step(tokens);
  EXPECT_LE(memory.use().reserved, longest + longest / 10);
}

TEST(Memory, WholeRegionsThatAreFreeGoBackBeforeTheLimitIsAnError) {
  Memory memory(200 << 20);
  {
    const auto a = memory.allocate(60 << 20, MemoryTag::data), b = memory.allocate(60 << 20, MemoryTag::data);
  }
  const auto held = memory.allocate(150 << 20, MemoryTag::data);
  EXPECT_LE(memory.use().reserved, std::size_t{200} << 20);
  std::memset(held->data(), 1, held->bytes());
}

TEST(Memory, ThreadsShareOnePool) {
  Memory memory;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&memory, t] {
      for (int i = 0; i < 500; ++i) {
        const auto block = memory.allocate(64 + i * 7, MemoryTag::data);
        std::memset(block->data(), t, block->bytes());
        for (std::size_t k = 0; k < block->bytes(); ++k) ASSERT_EQ(block->data()[k], std::byte(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(memory.use().total_current, 0u);
}

TEST(Tensor, SlicesShareTheStorage) {
  Memory memory;
  Tensor tensor(memory, MemoryTag::weights, DType::i32, 3, 4);
  for (int r = 0; r < 3; ++r) {
    for (int c = 0; c < 4; ++c) tensor.view().row<std::int32_t>(r)[c] = 10 * r + c;
  }
  EXPECT_TRUE(tensor.unique());
  const Tensor part = tensor.slice_rows(1, 2).slice_cols(2, 2);
  EXPECT_FALSE(tensor.unique());
  EXPECT_EQ(part.view().row<std::int32_t>(1)[1], 23);
  EXPECT_FALSE(part.view().contiguous());
  EXPECT_EQ(tensor.view().slice_cols(1, 2).slice_rows(2, 1).row<std::int32_t>(0)[0], 21);
  EXPECT_EQ(kind_of([&] { tensor.slice_rows(2, 2); }), ErrorKind::internal);
  EXPECT_EQ(memory.use().total_current, 48u);
}

TEST(Memory, AFreePieceBeforeUntouchedMemoryIsTakenAlong) {
  Memory memory;
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  const auto first = memory.allocate(2 * kMiB, MemoryTag::activations);
  auto last = memory.allocate(3 * kMiB, MemoryTag::activations);
  const std::byte* const where = last->data();
  std::memset(last->data(), 0x5a, 3 * kMiB);
  last.reset();
  const auto larger = memory.allocate(40 * kMiB, MemoryTag::activations);
  EXPECT_EQ(larger->data(), where);
  EXPECT_FALSE(larger->was_zero());
  EXPECT_EQ(memory.use().reserved, 42 * kMiB);
}

TEST(Memory, TheLimitHoldsWhateverIsTakenAlong) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  Memory memory(10 * kMiB);
  const auto first = memory.allocate(4 * kMiB, MemoryTag::activations);
  auto low = memory.allocate(2 * kMiB, MemoryTag::activations);
  auto between = memory.allocate(kMiB, MemoryTag::activations);
  auto high = memory.allocate(3 * kMiB, MemoryTag::activations);
  low.reset();
  high.reset();
  const auto larger = memory.allocate(5 * kMiB, MemoryTag::activations);
  EXPECT_LE(memory.use().reserved, 10 * kMiB);
  between.reset();
  EXPECT_FALSE(error_of([&] { memory.allocate(2 * kMiB, MemoryTag::activations); }).empty());
  EXPECT_LE(memory.use().reserved, 10 * kMiB);
}

TEST(Memory, TheLowestFreePieceIsUsedFirst) {
  Memory memory;
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  auto low = memory.allocate(8 * kMiB, MemoryTag::activations);
  const auto between = memory.allocate(kMiB, MemoryTag::activations);
  auto high = memory.allocate(2 * kMiB, MemoryTag::activations);
  const auto end = memory.allocate(kMiB, MemoryTag::activations);
  const std::byte* const where = low->data();
  low.reset();
  high.reset();
  EXPECT_EQ(memory.allocate(2 * kMiB, MemoryTag::activations)->data(), where);
}

TEST(Memory, SaysWhetherABlockIsStillZero) {
  Memory memory;
  for (const std::size_t bytes : {std::size_t{100}, std::size_t{4} << 20}) {
    auto block = memory.allocate(bytes, MemoryTag::optimizer);
    EXPECT_TRUE(block->was_zero());
    EXPECT_EQ(block->data()[bytes - 1], std::byte{0});
    block->data()[bytes - 1] = std::byte{1};
    block.reset();
    EXPECT_FALSE(memory.allocate(bytes, MemoryTag::optimizer)->was_zero());
  }
}

}  // namespace
}  // namespace lode
