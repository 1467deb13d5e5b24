#include "kernels/random.h"

#include <gtest/gtest.h>

#include "kernel_test.h"

namespace lode {
namespace {

float expected(std::uint32_t bits, std::span<const float> table, int table_bits, float scale) {
  const int fraction_bits = 31 - table_bits;
  const std::uint32_t index = (bits & 0x7fffffffu) >> fraction_bits;
  const float fraction = static_cast<float>(bits & ((1u << fraction_bits) - 1)) *
                         (1.0f / static_cast<float>(1u << fraction_bits));
  volatile float scaled = fraction * (table[index + 1] - table[index]);
  const float value = table[index] + scaled;
  return (bits >> 31 != 0 ? -value : value) * scale;
}

TEST(FillFromTable, IsTheScalarFormulaBitForBit) {
  std::vector<float> table(1025);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = std::sqrt(static_cast<float>(i)) - 3.3f;
  const PhiloxKey key = make_key(7, "random_test");
  for (const std::int64_t n : {1, 3, 4, 63, 64, 65, 16385, 100003}) {
    for (const int threads : {1, 2}) {
      Memory memory;
      Workspace workspace(memory);
      KernelContext context{threads, &workspace};
      const Tensor y(memory, MemoryTag::weights, DType::f32, 1, n);
      fill_from_table(context, key, table, 0.7f, y.view());
      for (std::int64_t i = 0; i < n; ++i) {
        const auto words = philox({static_cast<std::uint32_t>(i / 4), 0, 0, 0}, key);
        ASSERT_EQ(y.view().row<float>(0)[i],
                  expected(words[static_cast<std::size_t>(i % 4)], table, 10, 0.7f))
            << n << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace lode
