// Formats read without vector code, and nf4.
#include <algorithm>
#include <cctype>
#include <cmath>

#include "kernels/cpu/quantized.h"

namespace lode {
namespace {

constexpr std::string_view kNames[kNumQuantFormats] = {"F32",  "F16",    "BF16", "Q4_0", "Q4_1", "Q5_0",
                                                       "Q5_1", "Q8_0",   "Q2_K", "Q3_K", "Q4_K", "Q5_K",
                                                       "Q6_K", "IQ4_NL", "nf4",  "int8"};

void q5(const std::uint8_t* high_bits, const std::uint8_t* codes, float d, float shift, float* y) {
  std::uint32_t high;
  std::memcpy(&high, high_bits, sizeof(high));
  for (int j = 0; j < 16; ++j) {
    const std::uint32_t low = (codes[j] & 15u) | (high >> j & 1u) << 4,
                        up = (codes[j] >> 4u) | (high >> (j + 16) & 1u) << 4;
    y[j] = static_cast<float>(low) * d + shift;
    y[j + 16] = static_cast<float>(up) * d + shift;
  }
}

void q2_k(const std::uint8_t* b, float* y) {
  const float d = read_f16(b + 80), dmin = read_f16(b + 82);
  for (int i = 0; i < 256; ++i) {
    const int n = i / 128, s = i % 128 / 32, r = i % 32;
    const int scale = b[8 * n + 2 * s + r / 16], q = b[16 + 32 * n + r] >> (2 * s) & 3;
    y[i] = d * static_cast<float>((scale & 15) * q) - dmin * static_cast<float>(scale >> 4);
  }
}

void q3_k(const std::uint8_t* b, float* y) {
  const std::uint8_t *mask = b, *codes = b + 32, *packed = b + 96;
  const float d = read_f16(b + 108);
  float scales[16];
  for (int k = 0; k < 16; ++k) {
    const int low = k < 8 ? packed[k] & 15 : packed[k - 8] >> 4,
              high = packed[8 + k % 4] >> (2 * (k / 4)) & 3;
    scales[k] = d * static_cast<float>((low | high << 4) - 32);
  }
  for (int i = 0; i < 256; ++i) {
    const int n = i / 128, s = i % 128 / 32, r = i % 32;
    const int q = (codes[32 * n + r] >> (2 * s) & 3) - ((mask[r] >> (4 * n + s) & 1) != 0 ? 0 : 4);
    y[i] = scales[8 * n + 2 * s + r / 16] * static_cast<float>(q);
  }
}

void q5_k(const std::uint8_t* b, float* y) {
  const float d = read_f16(b), dmin = read_f16(b + 2);
  const std::uint8_t *high = b + 16, *codes = b + 48;
  for (int block = 0; block < 8; ++block) {
    const ScaleAndMin pair = scale_and_min(b + 4, block);
    const float scale = d * pair.scale, shift = dmin * pair.min;
    for (int j = 0; j < 32; ++j) {
      const int byte = codes[32 * (block / 2) + j], low = block % 2 == 0 ? byte & 15 : byte >> 4;
      y[32 * block + j] = scale * static_cast<float>(low | (high[j] >> block & 1) << 4) - shift;
    }
  }
}

void iq4_nl(const std::uint8_t* b, float* y) {
  constexpr std::int8_t kTable[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
  const float d = read_f16(b);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>(kTable[b[2 + j] & 15]);
    y[j + 16] = d * static_cast<float>(kTable[b[2 + j] >> 4]);
  }
}

}  // namespace

std::string_view name_of(QuantFormat format) {
  return kNames[static_cast<int>(format)];
}

std::optional<QuantFormat> quant_format_from_name(std::string_view name) {
  const auto equal = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  for (int i = 0; i < kNumQuantFormats; ++i) {
    if (std::ranges::equal(kNames[i], name, equal)) return static_cast<QuantFormat>(i);
  }
  return std::nullopt;
}

void decode_block(QuantFormat format, const std::uint8_t* b, float* y) {
  switch (format) {
    case QuantFormat::q5_0:
      return q5(b + 2, b + 6, read_f16(b), -16 * read_f16(b), y);
    case QuantFormat::q5_1:
      return q5(b + 4, b + 8, read_f16(b), read_f16(b + 2), y);
    case QuantFormat::q2_k:
      return q2_k(b, y);
    case QuantFormat::q3_k:
      return q3_k(b, y);
    case QuantFormat::q5_k:
      return q5_k(b, y);
    case QuantFormat::iq4_nl:
      return iq4_nl(b, y);
    default:
      LODE_ASSERT(false);
  }
}

// The quantiles of a normal distribution, scaled to [-1, 1] (Dettmers et al. 2023, arXiv 2305.14314).
const std::array<float, 16> kNf4Levels = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

const std::array<float, 256>& dynamic_code() {
  static const std::array<float, 256> code = [] {
    std::array<float, 256> values{};
    std::size_t count = 0;
    for (int i = 0; i < 7; ++i) {
      const int pieces = 1 << i;
      for (int k = 0; k < pieces; ++k) {  // midpoints of the pieces of [0.1, 1]
        const double middle = 0.1 + 0.9 * (k + 0.5) / pieces, value = middle * std::pow(10.0, i - 6);
        values[count++] = static_cast<float>(value);
        values[count++] = static_cast<float>(-value);
      }
    }
    values[count++] = 0.0f;
    values[count++] = 1.0f;
    std::ranges::sort(values);
    return values;
  }();
  return code;
}

Nf4Row::Nf4Row(const std::uint8_t* row, std::int64_t cols)
    : cols(cols),
      blocks((cols + kNf4Block - 1) / kNf4Block),
      groups((blocks + kNf4Group - 1) / kNf4Group),
      group_scales(row + 4),
      scales(group_scales + 4 * groups),
      codes(scales + blocks),
      mean(read_f32(row)) {}

float Nf4Row::scale(std::int64_t block) const {
  return dynamic_code()[scales[block]] * read_f32(group_scales + 4 * (block / kNf4Group)) + mean;
}

void Nf4Row::decode(std::int64_t block, float* y) const {
  const float largest = scale(block);
  float levels[16];
  for (int i = 0; i < 16; ++i) levels[i] = kNf4Levels[static_cast<std::size_t>(i)] * largest;
  const std::int64_t begin = block * kNf4Block, n = std::min(kNf4Block, cols - begin);
  const std::uint8_t* bytes = codes + begin / 2;
  for (std::int64_t j = 0; j < (n + 1) / 2; ++j) {
    y[2 * j] = levels[bytes[j] >> 4];
    y[2 * j + 1] = levels[bytes[j] & 15];
  }
}

}  // namespace lode
