// Parts of the quantised formats that reading and writing share.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "core/dtype.h"
#include "kernels/quantized.h"

namespace lode {

inline float read_f16(const std::uint8_t* p) {
  f16 value;
  std::memcpy(&value, p, sizeof(value));
  return to_f32(value);
}
inline float read_f32(const std::uint8_t* p) {
  float value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

// The 6-bit scale and minimum of sub-block 0..7 of Q4_K and Q5_K.
struct ScaleAndMin {
  float scale, min;
};
inline ScaleAndMin scale_and_min(const std::uint8_t* packed, int block) {
  if (block < 4) return {static_cast<float>(packed[block] & 63), static_cast<float>(packed[block + 4] & 63)};
  const int scale = (packed[block + 4] & 15) | (packed[block - 4] >> 6) << 4,
            min = (packed[block + 4] >> 4) | (packed[block] >> 6) << 4;
  return {static_cast<float>(scale), static_cast<float>(min)};
}

// One block of a format without vector code.
void decode_block(QuantFormat format, const std::uint8_t* block, float* y);

inline constexpr std::int64_t kNf4Block = 64, kNf4Group = 256;
extern const std::array<float, 16> kNf4Levels;

// The signed 8-bit dynamic code (Dettmers et al. 2021, arXiv 2110.02861), ascending from about -0.993 to 1.
const std::array<float, 256>& dynamic_code();

// Where the parts of a row are; the row outlives it.
struct Nf4Row {
  Nf4Row(const std::uint8_t* row, std::int64_t cols);
  float scale(std::int64_t block) const;  // the block's largest magnitude, as stored
  // All 64 values, also of a partial last block (those beyond the row are arbitrary).
  void decode(std::int64_t block, float* y) const;

  std::int64_t cols, blocks, groups;
  const std::uint8_t *group_scales, *scales, *codes;
  float mean;
};

}  // namespace lode
