#include <gtest/gtest.h>

#include "kernels/kernel.h"

namespace lode {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::size_t held(const Memory& memory) {
  return memory.use().current[static_cast<std::size_t>(MemoryTag::workspace)];
}

TEST(Workspace, WhatAScopeTakesIsFreeAgain) {
  Memory memory;
  Workspace workspace(memory);
  std::byte* first = nullptr;
  for (int i = 0; i < 3; ++i) {
    Workspace::Scope scope(workspace);
    std::byte* const data = scope.take(kMiB);
    if (i == 0) first = data;
    EXPECT_EQ(data, first);
    {
      Workspace::Scope inner(workspace);
      EXPECT_EQ(inner.take(kMiB), first + kMiB);
    }
    EXPECT_EQ(scope.take(64), first + kMiB);
  }
  EXPECT_EQ(held(memory), 4 * kMiB);
}

// As attention over a cache that grows with each token does.
TEST(Workspace, WorkThatGrowsHoldsItsLastSizeOnly) {
  Memory memory;
  Workspace workspace(memory);
  for (std::size_t size = kMiB; size <= 16 * kMiB; size += kMiB / 4) {
    Workspace::Scope scope(workspace);
    scope.take(size);
  }
  EXPECT_EQ(held(memory), 16 * kMiB);
}

TEST(Workspace, WhatIsInUseStaysWhenMoreIsTaken) {
  Memory memory;
  Workspace workspace(memory);
  { Workspace::Scope(workspace).take(8 * kMiB); }
  Workspace::Scope outer(workspace);
  std::byte* const kept = outer.take(5 * kMiB);
  kept[5 * kMiB - 1] = std::byte{7};
  for (const std::size_t size : {6 * kMiB, 9 * kMiB, 3 * kMiB}) {
    Workspace::Scope inner(workspace);
    std::byte* const data = inner.take(size);
    data[0] = data[size - 1] = std::byte{1};
  }
  EXPECT_EQ(kept[5 * kMiB - 1], std::byte{7});
  EXPECT_EQ(held(memory), (8 + 9) * kMiB);
}

}  // namespace
}  // namespace lode
