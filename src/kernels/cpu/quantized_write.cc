// Values to blocks. Rows are independent and each is written by one thread.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/quantized.h"
#include "kernels/cpu/ranges.h"

namespace lode {
namespace {

void write_f16(std::uint8_t* p, float value) {
  const f16 half = to_f16(value);
  std::memcpy(p, &half, sizeof(half));
}
void write_f32(std::uint8_t* p, float value) {
  std::memcpy(p, &value, sizeof(value));
}

float largest_magnitude(const float* x, std::int64_t n) {
  float most = 0;
  for (std::int64_t i = 0; i < n; ++i) most = std::max(most, std::abs(x[i]));
  return most;
}

void q8_0(const float* x, std::uint8_t* b) {
  const float d = largest_magnitude(x, 32) / 127, inverse = d == 0 ? 0 : 1 / d;
  write_f16(b, d);
  for (int i = 0; i < 32; ++i)
    b[2 + i] = static_cast<std::uint8_t>(static_cast<std::int8_t>(std::round(x[i] * inverse)));
}

void q4_0(const float* x, std::uint8_t* b) {
  float largest = 0;  // with its sign: it becomes code 0
  for (int i = 0; i < 32; ++i) {
    if (std::abs(x[i]) > std::abs(largest)) largest = x[i];
  }
  const float d = largest / -8, inverse = d == 0 ? 0 : 1 / d;
  write_f16(b, d);
  const auto code = [&](float v) {
    const double q = static_cast<double>(v) * static_cast<double>(inverse) + 8.5;
    return static_cast<unsigned>(std::clamp(q, 0.0, 15.0));
  };
  for (int j = 0; j < 16; ++j) b[2 + j] = static_cast<std::uint8_t>(code(x[j]) | code(x[j + 16]) << 4);
}

// scale * q - min for q in 0..15 with the least squared error, larger values weighing more.
struct Range {
  float scale = 0, min = 0;
};

// The step nearest to v steps, of 0..15.
float nearest_step(float v) {
  return static_cast<float>(static_cast<int>(std::clamp(v + 0.5f, 0.5f, 15.5f)));
}

Range fit_range(const float* x) {
  constexpr int kValues = 32;
  float least = 0, most = x[0], square = 0, weights[kValues];
  for (int i = 0; i < kValues; ++i) {
    least = std::min(least, x[i]);
    most = std::max(most, x[i]);
    square += x[i] * x[i];
  }
  if (most <= least) return {0, -least};
  const float mean = std::sqrt(square / kValues);
  float w = 0, wx = 0;
  for (int i = 0; i < kValues; ++i) {
    weights[i] = mean + std::abs(x[i]);
    w += weights[i];
    wx += weights[i] * x[i];
  }
  Range best{(most - least) / 15, -least};
  float best_error = -1;
  // A little more or less than 15 steps for the range, then the line that fits the rounded steps best.
  for (int trial = -6; trial <= 6; ++trial) {
    const float inverse = (15 + 0.15f * static_cast<float>(trial)) / (most - least);
    float wq = 0, wqq = 0, wxq = 0, steps[kValues];
    for (int i = 0; i < kValues; ++i) {
      steps[i] = nearest_step((x[i] - least) * inverse);
      const float weighted = weights[i] * steps[i];
      wq += weighted;
      wqq += weighted * steps[i];
      wxq += weighted * x[i];
    }
    const float determinant = w * wqq - wq * wq;
    if (!(determinant > 0)) continue;
    float scale = (w * wxq - wq * wx) / determinant, offset = (wx - scale * wq) / w;
    if (offset > 0) scale = wxq / wqq, offset = 0;  // the minimum cannot lift
    if (!(scale > 0)) continue;
    float error = 0;
    for (int i = 0; i < kValues; ++i) {
      const float miss = scale * steps[i] + offset - x[i];
      error += weights[i] * miss * miss;
    }
    if (best_error < 0 || error < best_error) {
      best_error = error;
      best = {scale, -offset};
    }
  }
  return best;
}

void pack_scale_and_min(std::uint8_t* packed, int block, unsigned scale, unsigned min) {
  if (block < 4) {
    packed[block] = static_cast<std::uint8_t>(packed[block] | scale);
    packed[block + 4] = static_cast<std::uint8_t>(packed[block + 4] | min);
    return;
  }
  packed[block + 4] = static_cast<std::uint8_t>((scale & 15) | (min & 15) << 4);
  packed[block - 4] = static_cast<std::uint8_t>(packed[block - 4] | scale >> 4 << 6);
  packed[block] = static_cast<std::uint8_t>(packed[block] | min >> 4 << 6);
}

void q4_k(const float* x, std::uint8_t* b) {
  Range ranges[8];
  float scale = 0, min = 0;
  for (int block = 0; block < 8; ++block) {
    ranges[block] = fit_range(x + 32 * block);
    scale = std::max(scale, ranges[block].scale);
    min = std::max(min, ranges[block].min);
  }
  std::memset(b, 0, 144);
  write_f16(b, scale / 63);
  write_f16(b + 2, min / 63);
  const float d = read_f16(b), dmin = read_f16(b + 2);
  const auto steps = [](float value, float step) {
    return step == 0 ? 0u : static_cast<unsigned>(std::clamp(std::round(value / step), 0.0f, 63.0f));
  };
  for (int block = 0; block < 8; ++block)
    pack_scale_and_min(b + 4, block, steps(ranges[block].scale, d), steps(ranges[block].min, dmin));
  for (int block = 0; block < 8; ++block) {
    const ScaleAndMin pair = scale_and_min(b + 4, block);
    const float step = d * pair.scale, low = dmin * pair.min;
    for (int j = 0; j < 32; ++j) {
      const float q = step == 0 ? 0 : nearest_step((x[32 * block + j] + low) / step);
      std::uint8_t& byte = b[16 + 32 * (block / 2) + j];
      byte = static_cast<std::uint8_t>(byte | static_cast<unsigned>(q) << (block % 2 == 0 ? 0 : 4));
    }
  }
}

// Halfway between neighbouring levels; a value above moves up.
unsigned nearest_level(float x) {
  unsigned code = 0;
  for (std::size_t i = 0; i + 1 < kNf4Levels.size(); ++i)
    code += x > (kNf4Levels[i] + kNf4Levels[i + 1]) / 2 ? 1 : 0;
  return code;
}

std::uint8_t nearest_code(float x) {
  const auto& code = dynamic_code();
  const auto above = std::ranges::lower_bound(code, x);
  if (above == code.begin()) return 0;
  if (above == code.end()) return 255;
  const auto index = above - code.begin();
  return static_cast<std::uint8_t>(x - *(above - 1) <= *above - x ? index - 1 : index);
}

void nf4_row(const float* x, std::int64_t cols, std::uint8_t* row) {
  std::memset(row, 0, static_cast<std::size_t>(row_bytes(QuantFormat::nf4, cols)));
  const Nf4Row parts(row, cols);
  std::uint8_t* codes = row + (parts.codes - row);
  std::vector<float> scales(static_cast<std::size_t>(parts.blocks));
  double sum = 0;
  for (std::int64_t block = 0; block < parts.blocks; ++block) {
    const std::int64_t begin = block * kNf4Block, n = std::min(kNf4Block, cols - begin);
    const float most = largest_magnitude(x + begin, n), inverse = most == 0 ? 0 : 1 / most;
    scales[static_cast<std::size_t>(block)] = most;
    sum += static_cast<double>(most);
    for (std::int64_t i = begin; i < begin + n; ++i) {
      const unsigned code = nearest_level(x[i] * inverse) << (i % 2 == 0 ? 4 : 0);
      codes[i / 2] = static_cast<std::uint8_t>(codes[i / 2] | code);
    }
  }
  const auto mean = static_cast<float>(sum / static_cast<double>(std::max<std::int64_t>(parts.blocks, 1)));
  write_f32(row, mean);
  for (float& scale : scales) scale -= mean;
  for (std::int64_t group = 0; group < parts.groups; ++group) {
    const std::int64_t begin = group * kNf4Group, n = std::min(kNf4Group, parts.blocks - begin);
    const float most = largest_magnitude(scales.data() + begin, n), inverse = most == 0 ? 0 : 1 / most;
    write_f32(row + 4 + 4 * group, most);
    for (std::int64_t i = begin; i < begin + n; ++i)
      row[4 + 4 * parts.groups + i] = nearest_code(scales[static_cast<std::size_t>(i)] * inverse);
  }
}

void int8_row(const float* x, std::int64_t cols, std::uint8_t* row) {
  const float most = largest_magnitude(x, cols), inverse = most == 0 ? 0 : 127 / most;
  write_f32(row, most);
  for (std::int64_t i = 0; i < cols; ++i) {
    const long q = std::clamp(std::lrint(x[i] * inverse), -127L, 127L);
    row[4 + i] = static_cast<std::uint8_t>(static_cast<std::int8_t>(q));
  }
}

void encode_row(QuantFormat format, const float* x, std::int64_t cols, std::uint8_t* row) {
  const std::int64_t values = block_values(format), bytes = block_bytes(format);
  const auto blocks = [&](auto encode) {
    for (std::int64_t i = 0; i < cols; i += values, row += bytes) encode(x + i, row);
  };
  switch (format) {
    case QuantFormat::f32:
      std::memcpy(row, x, static_cast<std::size_t>(cols) * sizeof(float));
      return;
    case QuantFormat::f16:
      return blocks([](const float* v, std::uint8_t* b) { write_f16(b, *v); });
    case QuantFormat::bf16:
      return blocks([](const float* v, std::uint8_t* b) {
        const bf16 half = to_bf16(*v);
        std::memcpy(b, &half, sizeof(half));
      });
    case QuantFormat::q8_0:
      return blocks(q8_0);
    case QuantFormat::q4_0:
      return blocks(q4_0);
    case QuantFormat::q4_k:
      return blocks(q4_k);
    case QuantFormat::nf4:
      return nf4_row(x, cols, row);
    case QuantFormat::int8:
      return int8_row(x, cols, row);
    default:
      fail(ErrorKind::internal, "{} cannot be written", name_of(format));
  }
}

}  // namespace

bool can_quantize(QuantFormat format) {
  switch (format) {
    case QuantFormat::f32:
    case QuantFormat::f16:
    case QuantFormat::bf16:
    case QuantFormat::q8_0:
    case QuantFormat::q4_0:
    case QuantFormat::q4_k:
    case QuantFormat::nf4:
    case QuantFormat::int8:
      return true;
    default:
      return false;
  }
}

void quantize_rows(KernelContext& context, QuantFormat format, ConstView x, std::byte* out) {
  LODE_ASSERT(x.dtype == DType::f32 || x.dtype == DType::bf16);
  LODE_ASSERT(fits(format, x.cols));
  const std::int64_t bytes = row_bytes(format, x.cols);
  auto* data = reinterpret_cast<std::uint8_t*>(out);
  for_rows(context, x.rows, x.cols, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> wide(x.dtype == DType::f32 ? 0 : static_cast<std::size_t>(x.cols));
    for (std::int64_t r = begin; r < end; ++r) {
      const float* row = x.row<float>(r);
      if (x.dtype == DType::bf16) {
        for (std::int64_t c = 0; c < x.cols; ++c)
          wide[static_cast<std::size_t>(c)] = to_f32(x.row<bf16>(r)[c]);
        row = wide.data();
      }
      encode_row(format, row, x.cols, data + r * bytes);
    }
  });
}

}  // namespace lode
