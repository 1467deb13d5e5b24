#include "nn/rotary_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

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

using Goldens = std::vector<std::pair<std::int64_t, double>>;

void expect_frequencies(const RotarySpec& spec, const Goldens& goldens) {
  for (const auto& [j, want] : goldens) EXPECT_NEAR(rotary_frequency(spec, j), want, 5e-7 * want) << j;
}

// Values of Hugging Face's rule for three published settings.
TEST(RotaryTable, YarnFrequencies) {
  RotarySpec spec{.theta = 1.5e5,
                  .rotary_dim = 64,
                  .scaling = RotarySpec::Scaling::yarn,
                  .factor = 32,
                  .original_max_positions = 4096,
                  .truncate = false};
  expect_frequencies(spec, {{1, 6.890443e-1},
                            {8, 5.081327e-2},
                            {10, 1.933500e-2},
                            {12, 6.794959e-3},
                            {16, 4.564839e-4},
                            {17, 1.293187e-4},
                            {18, 3.830881e-5},
                            {31, 3.023511e-7}});
  spec = {.theta = 1e4,
          .rotary_dim = 64,
          .scaling = RotarySpec::Scaling::yarn,
          .factor = 40,
          .original_max_positions = 4096};
  expect_frequencies(spec, {{9, 7.498942e-2},
                            {10, 5.623413e-2},
                            {11, 3.900693e-2},
                            {16, 5.5e-3},
                            {22, 1.778279e-4},
                            {23, 3.333803e-5},
                            {31, 3.333804e-6}});
  spec = {.theta = 1e6,
          .rotary_dim = 128,
          .scaling = RotarySpec::Scaling::yarn,
          .factor = 4,
          .original_max_positions = 32768};
  expect_frequencies(spec, {{20, 1.333521e-2},
                            {24, 5.375321e-3},
                            {30, 1.064361e-3},
                            {38, 9.262301e-5},
                            {40, 4.445699e-5},
                            {63, 3.102344e-7}});
}

TEST(RotaryTable, DynamicFrequenciesFollowTheLength) {
  const RotarySpec spec{.theta = 1e4,
                        .rotary_dim = 128,
                        .scaling = RotarySpec::Scaling::dynamic,
                        .factor = 2,
                        .original_max_positions = 4096};
  const double theta = std::pow(rotary_frequency(spec, 1, 8192), -64.0);
  EXPECT_NEAR(theta, 30527.737, 0.01);
  EXPECT_DOUBLE_EQ(rotary_frequency(spec, 5, 4096), rotary_frequency(spec, 5, 1));
}

TEST(RotaryTable, LongropeChoosesByLength) {
  const RotarySpec spec{.theta = 100,
                        .rotary_dim = 4,
                        .scaling = RotarySpec::Scaling::longrope,
                        .original_max_positions = 8,
                        .short_factors = {1, 2},
                        .long_factors = {4, 5}};
  EXPECT_NEAR(rotary_frequency(spec, 1, 8), 0.05, 1e-15);
  EXPECT_NEAR(rotary_frequency(spec, 1, 9), 0.02, 1e-15);
}

// Two samples in one stream, one beyond the limit, then padding: each has the rows that it has alone.
TEST(RotaryTable, LengthRulesGoBySegment) {
  Memory memory;
  RotaryTable table;
  const RotarySpec spec{.theta = 100,
                        .rotary_dim = 4,
                        .scaling = RotarySpec::Scaling::longrope,
                        .original_max_positions = 3,
                        .attention_factor = 2,
                        .short_factors = {1, 2},
                        .long_factors = {4, 5}};
  const Segments segments(std::vector<std::int32_t>{3, 4}, std::vector<std::int64_t>{0, 1}, 9,
                          std::vector<std::int32_t>{0, 6});
  prepare_rotary_table(memory, spec, segments, table);
  ASSERT_EQ(table.rows.size(), 9u);
  const auto expect_row = [&](std::int32_t token, double angle) {
    const std::int32_t row = table.rows[static_cast<std::size_t>(token)];
    EXPECT_FLOAT_EQ(table.cos.view().row<float>(row)[1], static_cast<float>(2 * std::cos(angle)));
    EXPECT_FLOAT_EQ(table.sin.view().row<float>(row)[1], static_cast<float>(2 * std::sin(angle)));
  };
  expect_row(0, 0);
  expect_row(2, 2 * 0.05);
  expect_row(3, 6 * 0.02);  // continues 6 cached tokens: the whole is long
  expect_row(6, 9 * 0.02);
  expect_row(8, 0);
}

}  // namespace
}  // namespace lode
