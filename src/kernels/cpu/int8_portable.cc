// The parts of an int8 product for any processor: the oracle of the fast ones, equal to the bit.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/dtype.h"
#include "kernels/cpu/int8_tiles.h"

namespace lode {
namespace {

float value_at(const void* x, bool is_bf16, std::int64_t i) {
  return is_bf16 ? to_f32(static_cast<const bf16*>(x)[i]) : static_cast<const float*>(x)[i];
}

float scaled_at(const Int8Quantize& b, std::int64_t i) {
  const float value = value_at(b.x, b.is_bf16, i);
  return b.factors == nullptr ? value : value * b.factors[i];
}

void quantize(const Int8Quantize& b) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < b.n; ++i)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(scaled_at(b, i)) & 0x7fffffffu);
  const Int8Scale scale = int8_scale(largest);
  *b.scale = scale.scale;
  std::int32_t sum = 0;
  for (std::int64_t i = 0; i < b.n; ++i) {
    b.q[i] = scale.inverse == 0 ? std::int8_t{0}
                                : static_cast<std::int8_t>(std::nearbyint(scaled_at(b, i) * scale.inverse));
    sum += b.q[i];
  }
  *b.offset = -128 * sum;
}

std::uint8_t* cell(std::uint8_t* out, std::int64_t k, std::int64_t n) {
  return out + (k / 4 * kPanelCols + n) * 4 + k % 4;
}

std::uint8_t shifted(std::int8_t q) {
  return static_cast<std::uint8_t>(q + 128);
}

void pack_rows(const Int8Rows& x, std::uint8_t* out) {
  std::memset(out, 128, static_cast<std::size_t>((x.cols + 3) / 4 * 4 * kPanelCols));
  for (std::int64_t n = 0; n < x.rows; ++n) {
    for (std::int64_t k = 0; k < x.cols; ++k) *cell(out, k, n) = shifted(x.data[n * x.stride + k]);
  }
}

void pack_cols(const Int8Rows& x, std::uint8_t* out) {
  std::memset(out, 128, static_cast<std::size_t>((x.rows + 3) / 4 * 4 * kPanelCols));
  for (std::int64_t k = 0; k < x.rows; ++k) {
    for (std::int64_t n = 0; n < x.cols; ++n) *cell(out, k, n) = shifted(x.data[k * x.stride + n]);
  }
}

void multiply_block(const Int8Product& p, std::int64_t r, std::int64_t block) {
  const std::int64_t first = block * p.block_quads, last = std::min(first + p.block_quads, p.quads);
  std::int32_t sum[kPanelCols] = {};
  for (std::int64_t k = first; k < last; ++k) {
    const std::int8_t* a = p.a + r * p.a_row + 4 * k;
    const std::uint8_t* b = p.b + k * 4 * kPanelCols;
    for (std::int64_t n = 0; n < kPanelCols; ++n) {
      for (std::int64_t i = 0; i < 4; ++i) sum[n] += a[i] * b[4 * n + i];
    }
  }
  const std::int64_t at = r * p.step + block;
  for (std::int64_t n = 0; n < kPanelCols; ++n) {
    float& target = p.partial[r * kPanelCols + n];
    const float before = p.add || block > 0 ? target : 0.0f;
    target = std::fma(static_cast<float>(sum[n] + p.offset[at]), p.scale[at], before);
  }
}

void multiply(const Int8Product& p) {
  for (std::int64_t r = 0; r < p.strips * kStripRows; ++r) {
    for (std::int64_t block = 0; block * p.block_quads < p.quads; ++block) multiply_block(p, r, block);
  }
}

void finish(const Int8Output& o) {
  for (std::int64_t r = 0; r < o.rows; ++r) {
    for (std::int64_t n = 0; n < o.cols; ++n) {
      const std::int64_t at = r * o.c_stride + n;
      float value = o.partial[r * kPanelCols + n];
      if (o.scale != nullptr) value *= o.scale[n];
      if (o.bias != nullptr) value += o.bias[n];
      if (o.add) value += value_at(o.c, o.is_bf16, at);
      if (o.is_bf16) {
        static_cast<bf16*>(o.c)[at] = to_bf16(value);
      } else {
        static_cast<float*>(o.c)[at] = value;
      }
    }
  }
}

}  // namespace

const Int8Tiles& portable_int8_tiles() {
  static const Int8Tiles tiles{quantize, pack_rows, pack_cols, multiply, finish};
  return tiles;
}

}  // namespace lode
