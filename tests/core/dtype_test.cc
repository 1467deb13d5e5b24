#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lode {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// The value of a 16-bit float by the definition of its format.
double value_of(std::uint16_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return mantissa != 0 ? std::nan("") : sign * kInf;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

template <class Half>
void check_all(int exponent_bits, Half (*narrow)(float)) {
  const auto limit =
      static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << (15 - exponent_bits));  // infinity
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const Half half{static_cast<std::uint16_t>(bits)};
    const double value = value_of(half.bits, exponent_bits);
    const float wide = to_f32(half);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(wide)) << bits;
      ASSERT_TRUE(std::isnan(to_f32(narrow(wide)))) << bits;
      continue;
    }
    ASSERT_EQ(wide, value) << bits;
    ASSERT_EQ(std::signbit(wide), (bits & 0x8000) != 0) << bits;
    ASSERT_EQ(narrow(wide).bits, half.bits) << bits;
    // Around the middle between this value and the next larger one: below, at (ties to even), above.
    if ((bits & 0x7fff) >= limit) continue;
    const bool last = ((bits + 1) & 0x7fff) == limit;
    double next = value_of(static_cast<std::uint16_t>(bits + 1), exponent_bits);
    if (last) next = value + (value - value_of(static_cast<std::uint16_t>(bits - 1), exponent_bits));
    const auto middle = static_cast<float>((value + next) / 2);
    ASSERT_EQ(static_cast<double>(middle), (value + next) / 2) << bits;
    const auto up = static_cast<std::uint16_t>(bits + 1),
               even = static_cast<std::uint16_t>((bits & 1) != 0 ? up : bits);
    ASSERT_EQ(narrow(middle).bits, even) << bits;
    ASSERT_EQ(narrow(std::nextafter(middle, 0.0f)).bits, half.bits) << bits;
    ASSERT_EQ(narrow(std::nextafter(middle, middle > 0 ? kInf : -kInf)).bits, up) << bits;
  }
}

TEST(DType, Bf16RoundsToNearestEven) {
  check_all<bf16>(8, to_bf16);
}
TEST(DType, F16RoundsToNearestEven) {
  check_all<f16>(5, to_f16);
}

TEST(DType, NanStaysNanWhateverItsPayload) {
  for (const std::uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffffffffu, 0x7fc00000u}) {
    const auto nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(to_f32(to_bf16(nan)))) << bits;
    EXPECT_TRUE(std::isnan(to_f32(to_f16(nan)))) << bits;
  }
  EXPECT_EQ(to_f32(to_f16(-1e30f)), -kInf);
  EXPECT_EQ(to_f32(to_bf16(std::numeric_limits<float>::max())), kInf);
}

TEST(DType, Names) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(name_of(dtype)), dtype);
  }
  EXPECT_EQ(dtype_from_name("bfloat16"), DType::bf16);
  EXPECT_FALSE(dtype_from_name("f64").has_value());
}

}  // namespace
}  // namespace lode
