#include "nn/rotary_table.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lode {
namespace {

RotarySpec llama31() {
  return {.theta = 5e5,
          .rotary_dim = 128,
          .scaling = RotarySpec::Scaling::llama3,
          .factor = 8,
          .low_freq_factor = 1,
          .high_freq_factor = 4,
          .original_max_positions = 8192};
}

// Goldens of an independent implementation of Hugging Face's rule.
TEST(RotaryTable, Llama3Frequencies) {
  const std::pair<std::int64_t, double> goldens[] = {
      {0, 1},
      {1, 8.146172e-1},
      {28, 3.211445995e-3},
      {29, 2.166570764e-3},
      {30, 1.371893568e-3},
      {32, 5.248460e-4},
      {34, 1.785078128e-4},
      {35, 9.556212354e-5},
      {36, 7.784655e-5},
      {63, 3.068925989e-7},
  };
  for (const auto& [j, want] : goldens) EXPECT_NEAR(rotary_frequency(llama31(), j), want, 5e-7 * want) << j;
}

TEST(RotaryTable, PlainAndLinearFrequencies) {
  RotarySpec spec{.theta = 10000, .rotary_dim = 8};
  EXPECT_DOUBLE_EQ(rotary_frequency(spec, 0), 1);
  EXPECT_NEAR(rotary_frequency(spec, 1), 0.1, 1e-15);
  EXPECT_NEAR(rotary_frequency(spec, 3), 1e-3, 1e-15);
  spec.scaling = RotarySpec::Scaling::linear;
  spec.factor = 4;
  EXPECT_NEAR(rotary_frequency(spec, 1), 0.025, 1e-15);
}

TEST(RotaryTable, GrowsAndKeepsItsValues) {
  Memory memory;
  RotaryTable table;
  const RotarySpec spec{.theta = 10000, .rotary_dim = 8};
  extend_rotary_table(memory, spec, 1, table);
  EXPECT_EQ(table.rotary_dim, 8);
  ASSERT_GE(table.cos.rows(), 1);
  EXPECT_EQ(table.cos.cols(), 4);
  const void* const first = table.cos.view().data;
  const std::int64_t rows = table.cos.rows();
  extend_rotary_table(memory, spec, rows, table);
  EXPECT_EQ(table.cos.view().data, first) << "large enough already";
  extend_rotary_table(memory, spec, 3000, table);
  ASSERT_GE(table.cos.rows(), 3000);
  for (const std::int64_t position : {std::int64_t{0}, std::int64_t{1}, std::int64_t{2999}}) {
    for (std::int64_t j = 0; j < 4; ++j) {
      const double angle = static_cast<double>(position) * std::pow(10.0, static_cast<double>(-j));
      EXPECT_FLOAT_EQ(table.cos.view().row<float>(position)[j], static_cast<float>(std::cos(angle)));
      EXPECT_FLOAT_EQ(table.sin.view().row<float>(position)[j], static_cast<float>(std::sin(angle)));
    }
  }
}

}  // namespace
}  // namespace lode
