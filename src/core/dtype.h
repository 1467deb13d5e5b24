// Element types of tensors, and the conversions between 16-bit floats and f32.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lode {

enum class DType : std::uint8_t { f32, bf16, f16, i32 };
inline constexpr int kNumDTypes = 4;

constexpr std::size_t size_of(DType dtype) {
  return dtype == DType::f32 || dtype == DType::i32 ? 4 : 2;
}
std::string_view name_of(DType dtype);                        // "f32", "bf16", "f16", "i32"
std::optional<DType> dtype_from_name(std::string_view name);  // accepts also "float32", "bfloat16", "float16"

struct bf16 {
  std::uint16_t bits;
};

struct f16 {
  std::uint16_t bits;
};

inline float to_f32(bf16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}
inline float to_f32(float x) {
  return x;
}
float to_f32(f16 x);

// Round to nearest, ties to even; NaN stays NaN.
inline bf16 to_bf16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
f16 to_f16(float x);

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::f32;
}
template <>
constexpr DType dtype_of<bf16>() {
  return DType::bf16;
}
template <>
constexpr DType dtype_of<f16>() {
  return DType::f16;
}
template <>
constexpr DType dtype_of<std::int32_t>() {
  return DType::i32;
}

}  // namespace lode
