// Matrices whose rows are stored in a quantised format: the block formats of GGUF files, plain floats, and
// two of our own for frozen bases, nf4 and int8. Rows are independent of each other and stored one after
// another, so any range of rows can be read, moved or permuted as bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/kernel.h"

namespace lode {

enum class QuantFormat : std::uint8_t {
  f32,
  f16,
  bf16,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  nf4,   // row: f32 mean of the scales, f32 per 256 blocks, u8 per block, 4-bit codes; blocks of 64 values
  int8,  // row: f32 largest magnitude, i8 values
};
inline constexpr int kNumQuantFormats = 16;

std::string_view name_of(QuantFormat format);  // "Q4_K", as GGUF tools spell it; "nf4", "int8"
std::optional<QuantFormat> quant_format_from_name(std::string_view name);  // any case

// Values in a block; a row's length must be a multiple of it, except for nf4, whose last block may be
// partial.
constexpr std::int64_t block_values(QuantFormat format) {
  if (format <= QuantFormat::bf16 || format == QuantFormat::int8) return 1;
  if (format == QuantFormat::nf4) return 64;
  return format >= QuantFormat::q2_k && format <= QuantFormat::q6_k ? 256 : 32;
}

// Bytes of a block; 0 for nf4 and int8, whose rows have a head: use row_bytes.
constexpr std::int64_t block_bytes(QuantFormat format) {
  constexpr std::int64_t kBytes[kNumQuantFormats] = {4,  2,   2,   18,  20,  22, 24, 34,
                                                     84, 110, 144, 176, 210, 18, 0,  0};
  return kBytes[static_cast<int>(format)];
}

constexpr bool fits(QuantFormat format, std::int64_t cols) {
  return format == QuantFormat::nf4 || cols % block_values(format) == 0;
}

// Bytes of a row of `cols` values that fit the format.
constexpr std::int64_t row_bytes(QuantFormat format, std::int64_t cols) {
  if (format == QuantFormat::int8) return 4 + cols;
  if (format == QuantFormat::nf4) {
    const std::int64_t blocks = (cols + 63) / 64, groups = (blocks + 255) / 256;
    return 4 + 4 * groups + blocks + (cols + 1) / 2;
  }
  return cols / block_values(format) * block_bytes(format);
}

// out[i] = row first + i of the matrix that begins at `rows`, for all out.rows. out.cols is the width of the
// whole matrix; out is f32 or bf16 and overwritten. `rows` needs no alignment. Bit-equal for any number
// of threads; the result in bf16 is that in f32 rounded.
void dequantize_rows(KernelContext& context, QuantFormat format, const std::byte* rows, std::int64_t first,
                     View out);

// Whether quantize_rows can write the format: f32, f16, bf16, Q8_0, Q4_0, Q4_K, nf4, int8.
bool can_quantize(QuantFormat format);

// Writes all rows of x (f32 or bf16, finite values) to out, which holds x.rows * row_bytes(format,
// x.cols). Q8_0 and Q4_0 give the bytes of the reference; Q4_K searches its scales; nf4 rounds to the nearest
// level and its scales to an 8-bit code about their mean; int8 scales each row by its largest magnitude.
void quantize_rows(KernelContext& context, QuantFormat format, ConstView x, std::byte* out);

}  // namespace lode
