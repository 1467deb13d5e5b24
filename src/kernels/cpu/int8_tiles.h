// The parts of an int8 product, in two forms: portable, and AVX-512 8-bit dot products. The right operand is
// packed into panels of kPanelCols columns: quads of values along the summed dimension, as unsigned bytes
// (the value + 128). What the 128 adds is 128 times the sum of the left operand's block, known when that is
// quantised. Only plain types here: one of the sources is compiled for a newer processor than the rest.
#pragma once

#include <cstdint>

namespace lode {

struct Int8MatMul;
struct KernelContext;

inline constexpr std::int64_t kStripRows = 6;   // rows of the left operand that are multiplied together
inline constexpr std::int64_t kPanelCols = 64;  // columns of a packed panel
inline constexpr std::int64_t kInt8Depth = 64;  // most values of a block

// q = x * factor rounded to -127 .. 127, with scale and sum of q * 128.
struct Int8Quantize {
  const void* x;  // f32 or bf16
  bool is_bf16;
  const float* factors;  // [n], multiplied into x first; nullptr: none
  std::int64_t n;
  std::int8_t* q;
  float* scale;          // what q times gives x; NaN when x is not finite
  std::int32_t* offset;  // -128 * sum of q, which undoes the 128 of the right operand
};

// How values up to a magnitude, given by its bits, are quantised: what is not finite has no scale. No inline
// function: each of the sources has a copy of its own.
struct Int8Scale {
  float scale, inverse;  // inverse 0: all become 0
};
[[maybe_unused]] static Int8Scale int8_scale(std::uint32_t largest_bits) {
  if (largest_bits >= 0x7f800000u) return {__builtin_nanf(""), 0};
  float largest = 0;
  __builtin_memcpy(&largest, &largest_bits, sizeof(largest));
  if (largest < 1e-30f) return {0, 0};  // its inverse could overflow
  return {largest / 127, 127 / largest};
}

// Rows of int8, `stride` bytes apart.
struct Int8Rows {
  const std::int8_t* data;
  std::int64_t stride, rows, cols;
};

// Strips of the left operand times one panel, over some blocks of the summed dimension, each of block_quads
// quads but for the last, which has what is left of quads:
// partial[r][c] (+)= sum over the blocks, in order, of scale[r] * sum over the block of q[r][k] * b[k][c].
struct Int8Product {
  std::int64_t strips, quads, block_quads;
  const std::int8_t* a;
  std::int64_t a_row;  // bytes between rows
  const float* scale;  // of row r: scale[r * step]
  const std::int32_t* offset;
  std::int64_t step;
  const std::uint8_t* b;  // [quads][kPanelCols][4]
  float* partial;         // [strips * kStripRows][kPanelCols]
  bool add;
};

// c[r][n] = partial[r][n] * scale[n] + bias[n] (+ c[r][n]).
struct Int8Output {
  const float* partial;
  std::int64_t rows, cols;
  const float *scale, *bias;  // nullptr: none
  bool add;
  void* c;
  bool is_bf16;
  std::int64_t c_stride;  // elements
};

struct Int8Tiles {
  void (*quantize)(const Int8Quantize& block);
  // The panel whose column n is row n of x: out [ceil(x.cols / 4)][kPanelCols][4]. At most kPanelCols rows.
  void (*pack_rows)(const Int8Rows& x, std::uint8_t* out);
  // The panel whose column n is column n of x: out [ceil(x.rows / 4)][kPanelCols][4]. At most kPanelCols
  // columns.
  void (*pack_cols)(const Int8Rows& x, std::uint8_t* out);
  void (*multiply)(const Int8Product& product);
  void (*finish)(const Int8Output& output);
};

const Int8Tiles& portable_int8_tiles();
const Int8Tiles* vnni_int8_tiles();  // nullptr when this processor lacks the instructions

// int8_matmul with the given parts, for tests.
void int8_matmul_with(const Int8Tiles& tiles, KernelContext& context, const Int8MatMul& product);

}  // namespace lode
