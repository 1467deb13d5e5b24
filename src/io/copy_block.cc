#include "io/copy_block.h"

#include <cstring>
#include <utility>

#include "core/fail.h"

namespace lode {
namespace {

struct Block {
  const std::byte* from;
  ByteStrides from_strides;
  std::byte* to;
  ByteStrides to_strides;
  std::int64_t rows, cols;
};

template <class To>
To narrowed(float x);
template <>
float narrowed<float>(float x) {
  return x;
}
template <>
bf16 narrowed<bf16>(float x) {
  return to_bf16(x);
}
template <>
f16 narrowed<f16>(float x) {
  return to_f16(x);
}

template <class From, class To>
void copy_row(const std::byte* from, std::int64_t from_step, std::byte* to, std::int64_t to_step,
              std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    // Tensors of a file need not be aligned.
    From in;
    std::memcpy(&in, from + i * from_step, sizeof(From));
    if constexpr (std::is_same_v<From, To>) {
      std::memcpy(to + i * to_step, &in, sizeof(To));
    } else {
      const To out = narrowed<To>(to_f32(in));
      std::memcpy(to + i * to_step, &out, sizeof(To));
    }
  }
}

template <class From, class To>
void copy_rows(const Block& b) {
  constexpr std::int64_t kFrom = sizeof(From), kTo = sizeof(To);
  for (std::int64_t r = 0; r < b.rows; ++r) {
    const std::byte* from = b.from + r * b.from_strides.row;
    std::byte* to = b.to + r * b.to_strides.row;
    if (b.from_strides.col != kFrom || b.to_strides.col != kTo) {
      copy_row<From, To>(from, b.from_strides.col, to, b.to_strides.col, b.cols);
    } else if constexpr (std::is_same_v<From, To>) {
      std::memcpy(to, from, static_cast<std::size_t>(b.cols * kFrom));
    } else {
      copy_row<From, To>(from, kFrom, to, kTo, b.cols);
    }
  }
}

template <class From>
void copy_from(DType to_type, const Block& block) {
  switch (to_type) {
    case DType::f32:
      return copy_rows<From, float>(block);
    case DType::bf16:
      return copy_rows<From, bf16>(block);
    case DType::f16:
      return copy_rows<From, f16>(block);
    case DType::i32:
      break;
  }
  LODE_ASSERT(false);
}

}  // namespace

bool is_convertible(DType from, DType to) {
  return from == to || (from != DType::i32 && to != DType::i32);
}

void copy_block(const std::byte* from, DType from_type, ByteStrides from_strides, std::byte* to,
                DType to_type, ByteStrides to_strides, std::int64_t rows, std::int64_t cols) {
  LODE_ASSERT(is_convertible(from_type, to_type));
  if (rows == 0 || cols == 0) return;
  if (from_strides.col > from_strides.row) {  // transposing: read along the source's rows
    std::swap(from_strides.row, from_strides.col);
    std::swap(to_strides.row, to_strides.col);
    std::swap(rows, cols);
  }
  const Block block{from, from_strides, to, to_strides, rows, cols};
  switch (from_type) {
    case DType::f32:
      return copy_from<float>(to_type, block);
    case DType::bf16:
      return copy_from<bf16>(to_type, block);
    case DType::f16:
      return copy_from<f16>(to_type, block);
    case DType::i32:
      return copy_rows<std::int32_t, std::int32_t>(block);
  }
}

}  // namespace lode
