#include "kernels/quantized.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/file.h"
#include "core/json.h"
#include "kernels/cpu/quantized.h"
#include "kernels/kernel_test.h"

namespace lode::test {
namespace {

using Bytes = std::vector<std::uint8_t>;

// The generator of tools/gguf_fixtures/make_blocks.py.
Bytes byte_stream(std::size_t count) {
  std::uint32_t state = 12345;
  Bytes out;
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    out.push_back(static_cast<std::uint8_t>(state >> 24));
  }
  return out;
}

std::vector<float> weights(std::int64_t rows, std::int64_t cols) {
  const Bytes bytes = byte_stream(static_cast<std::size_t>(4 * rows * cols));
  std::vector<float> values;
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    std::uint32_t word;
    std::memcpy(&word, bytes.data() + 4 * i, 4);
    const double unit = word / 2147483648.0 - 1;
    const auto value = static_cast<float>(unit * unit * unit);
    values.push_back(i < 64 ? 0 : value * static_cast<float>(1 + i / cols));
  }
  return values;
}

const std::byte* data_of(const Bytes& bytes) {
  return reinterpret_cast<const std::byte*>(bytes.data());
}

std::vector<std::size_t> scale_places(QuantFormat format) {
  switch (format) {
    case QuantFormat::q4_1:
    case QuantFormat::q5_1:
    case QuantFormat::q4_k:
    case QuantFormat::q5_k:
      return {0, 2};
    case QuantFormat::q2_k:
      return {80, 82};
    case QuantFormat::q3_k:
      return {108};
    case QuantFormat::q6_k:
      return {208};
    default:
      return {0};
  }
}

const QuantFormat kBlockFormats[] = {QuantFormat::q4_0, QuantFormat::q4_1,  QuantFormat::q5_0,
                                     QuantFormat::q5_1, QuantFormat::q8_0,  QuantFormat::q2_k,
                                     QuantFormat::q3_k, QuantFormat::q4_k,  QuantFormat::q5_k,
                                     QuantFormat::q6_k, QuantFormat::iq4_nl};

struct QuantizedTest : testing::Test {
  KernelContext context{.threads = 2};

  std::vector<float> read(QuantFormat format, const Bytes& bytes, std::int64_t rows, std::int64_t cols) {
    std::vector<float> out(static_cast<std::size_t>(rows * cols), -77.0f);
    dequantize_rows(context, format, data_of(bytes), 0, {out.data(), DType::f32, rows, cols, cols});
    return out;
  }
  Bytes write(QuantFormat format, const std::vector<float>& x, std::int64_t rows, std::int64_t cols) {
    Bytes out(static_cast<std::size_t>(rows * row_bytes(format, cols)));
    quantize_rows(context, format, {x.data(), DType::f32, rows, cols, cols},
                  reinterpret_cast<std::byte*>(out.data()));
    return out;
  }
  static const Json& fixture() {
    static const Json json =
        parse_json(real_files().read(LODE_TEST_DIR "/kernels/fixtures/quantized.json"), "quantized.json");
    return json;
  }
};

void expect_shown(const Json& expected, const std::vector<float>& values, double tolerance) {
  double sum = 0, abs_sum = 0;
  for (const float v : values) sum += v, abs_sum += std::abs(v);
  EXPECT_NEAR(sum, expected.at("sum").as_double(), tolerance * abs_sum);
  EXPECT_NEAR(abs_sum, expected.at("abs_sum").as_double(), tolerance * abs_sum);
  const auto& picks = expected.at("picks").as_array();
  const std::size_t step = std::max<std::size_t>(1, values.size() / 7);
  ASSERT_EQ(picks.size(), 8u);
  for (std::size_t i = 0; i < picks.size(); ++i) {
    const double want = picks[i].as_double();
    EXPECT_NEAR(values.at(i * step), want, tolerance * std::max(1.0, std::abs(want))) << i;
  }
}

std::int64_t weighted(const Bytes& bytes, bool is_signed = false) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::int64_t value = is_signed ? static_cast<std::int8_t>(bytes[i]) : bytes[i];
    sum += value * static_cast<std::int64_t>(1 + i % 251);
  }
  return sum;
}

TEST_F(QuantizedTest, BlocksGiveTheValuesOfTheReference) {
  for (const auto& [name, expected] : fixture().at("dequantize").as_object()) {
    SCOPED_TRACE(name);
    const auto format = quant_format_from_name(name);
    ASSERT_TRUE(format.has_value());
    const auto size = static_cast<std::size_t>(block_bytes(*format));
    const std::int64_t blocks = fixture().at("blocks").as_int();
    Bytes bytes = byte_stream(static_cast<std::size_t>(blocks) * size);
    const bool plain = *format == QuantFormat::f16 || *format == QuantFormat::bf16;
    for (std::size_t at = 0; at < bytes.size(); at += size) {
      for (const std::size_t place : scale_places(*format)) {
        std::uint8_t& high = bytes[at + place + 1];
        high = static_cast<std::uint8_t>((high & 0x8f) | (plain ? 0x30 : 0x20));
      }
    }
    for_each_target([&] {
      const auto values = read(*format, bytes, 1, blocks * block_values(*format));
      expect_shown(expected, values,
                   *format == QuantFormat::q5_k || *format == QuantFormat::q6_k ? 1e-6 : 1e-9);
    });
  }
}

// The stated check values: byte i of a block is 37 i + 11, scales are 1 and 0.5.
TEST_F(QuantizedTest, CheckValues) {
  const struct {
    QuantFormat format;
    std::vector<float> picks;  // y[0], y[1], then 17 and 31, or 100, 200 and 255
    double sum;
  } rows[] = {{QuantFormat::q4_0, {-3, 2, -1, 0}, -21},
              {QuantFormat::q4_1, {15.5, 4.5, 12.5, 12.5}, 261},
              {QuantFormat::q5_0, {9, -2, 0, 1}, 15},
              {QuantFormat::q5_1, {19.5, 24.5, 5.5, 5.5}, 521},
              {QuantFormat::q8_0, {85, 122, -54, -48}, -176},
              {QuantFormat::iq4_nl, {-35, 25, -10, 1}, -257},
              {QuantFormat::q2_k, {33, 0, 20, 8, 4.5}, 2059},
              {QuantFormat::q3_k, {81, -108, 0, 25, 42}, 958},
              {QuantFormat::q4_k, {315.5, -25.5, 95, 138.5, 48.5}, 54440},
              {QuantFormat::q5_k, {811.5, -25.5, 235, 138.5, 108.5}, 116216},
              {QuantFormat::q6_k, {-1431, 1696, 2523, 1089, -60}, 4612}};
  for (const auto& row : rows) {
    SCOPED_TRACE(name_of(row.format));
    Bytes bytes(static_cast<std::size_t>(block_bytes(row.format)));
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(37 * i + 11);
    const auto places = scale_places(row.format);
    for (std::size_t i = 0; i < places.size(); ++i) {
      bytes[places[i]] = 0;
      bytes[places[i] + 1] = i == 0 ? 0x3c : 0x38;  // 1 and 0.5
    }
    for_each_target([&] {
      const auto y = read(row.format, bytes, 1, block_values(row.format));
      const std::vector<std::size_t> at = y.size() == 32 ? std::vector<std::size_t>{0, 1, 17, 31}
                                                         : std::vector<std::size_t>{0, 1, 100, 200, 255};
      for (std::size_t i = 0; i < at.size(); ++i) EXPECT_EQ(y[at[i]], row.picks[i]) << at[i];
      double sum = 0;
      for (const float v : y) sum += v;
      EXPECT_EQ(sum, row.sum);
    });
  }
}

// bf16 output is the f32 one rounded; rows come out alone as in company; no element beyond is written.
TEST_F(QuantizedTest, AnyRangeOfRowsInEitherType) {
  for (int f = 0; f < kNumQuantFormats; ++f) {
    const auto format = static_cast<QuantFormat>(f);
    SCOPED_TRACE(name_of(format));
    const std::int64_t rows = 7, cols = format == QuantFormat::nf4 || block_values(format) == 1
                                            ? 97
                                            : 2 * block_values(format);
    Bytes bytes = byte_stream(static_cast<std::size_t>(rows * row_bytes(format, cols)) + 1);
    for (auto& b : bytes) b &= 0xbf;  // no infinities among scales
    bytes.erase(bytes.begin());       // an odd address
    const auto all = read(format, bytes, rows, cols);
    for_each_target([&] {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        Matrix part(dtype, 3, cols, 5);
        dequantize_rows(context, format, data_of(bytes), 2, part.view());
        EXPECT_TRUE(part.guards_intact());
        for (std::int64_t r = 0; r < 3; ++r) {
          for (std::int64_t c = 0; c < cols; ++c) {
            const float want = all[static_cast<std::size_t>((r + 2) * cols + c)];
            ASSERT_EQ(static_cast<float>(part.at(r, c)), dtype == DType::f32 ? want : to_f32(to_bf16(want)))
                << r << " " << c;
          }
        }
      }
    });
    Matrix none(DType::f32, 0, cols);
    dequantize_rows(context, format, data_of(bytes), 7, none.view());
  }
}

TEST_F(QuantizedTest, F16SubnormalsAndLimits) {
  const std::uint16_t halves[] = {0, 0x8000, 1, 0x03ff, 0x0400, 0x7bff, 0xfbff, 0x3555, 0x8001};
  Bytes bytes(sizeof(halves));
  std::memcpy(bytes.data(), halves, sizeof(halves));
  for_each_target([&] {
    const auto y = read(QuantFormat::f16, bytes, 1, std::size(halves));
    for (std::size_t i = 0; i < std::size(halves); ++i) EXPECT_EQ(y[i], to_f32(f16{halves[i]})) << i;
  });
}

TEST_F(QuantizedTest, WritesTheBytesOfTheReference) {
  const auto x = weights(5, 256);
  const Json& expected = fixture().at("quantize");
  for (const QuantFormat format : {QuantFormat::q8_0, QuantFormat::q4_0}) {
    const Bytes bytes = write(format, x, 5, 256);
    const Json& want = expected.at(name_of(format));
    std::int64_t sum = 0;
    for (const std::uint8_t b : bytes) sum += b;
    EXPECT_EQ(sum, want.at("byte_sum").as_int()) << name_of(format);
    EXPECT_EQ(weighted(bytes), want.at("weighted").as_int()) << name_of(format);
  }
}

TEST_F(QuantizedTest, Nf4AgreesWithBitsandbytes) {
  const auto x = weights(5, 256);
  const Bytes bytes = write(QuantFormat::nf4, x, 5, 256);
  Bytes codes;
  for (std::size_t row = 0; row < 5; ++row) {
    const std::uint8_t* begin =
        bytes.data() + row * static_cast<std::size_t>(row_bytes(QuantFormat::nf4, 256));
    codes.insert(codes.end(), begin + 4 + 4 + 4, begin + 4 + 4 + 4 + 128);
  }
  const Json& want = fixture().at("quantize").at("nf4");
  EXPECT_EQ(weighted(codes), want.at("weighted").as_int());
  // The scales' 8-bit code moves values by at most 2 % or so of the row's largest.
  expect_shown(want, read(QuantFormat::nf4, bytes, 5, 256), 0.03);
}

TEST_F(QuantizedTest, Int8AgreesWithBitsandbytes) {
  auto x = weights(5, 256);
  for (float& v : x) v = to_f32(to_f16(v));
  const Bytes bytes = write(QuantFormat::int8, x, 5, 256);
  const Json& want = fixture().at("quantize").at("int8");
  Bytes codes;
  for (std::size_t row = 0; row < 5; ++row) {
    const std::uint8_t* begin = bytes.data() + row * 260;
    EXPECT_FLOAT_EQ(read_f32(begin), static_cast<float>(want.at("scales").as_array()[row].as_double()));
    codes.insert(codes.end(), begin + 4, begin + 260);
  }
  EXPECT_EQ(weighted(codes, true), want.at("weighted").as_int());
}

TEST_F(QuantizedTest, ErrorsStayWithinAStep) {
  const std::int64_t rows = 6;
  for (const QuantFormat format :
       {QuantFormat::q8_0, QuantFormat::q4_0, QuantFormat::q4_k, QuantFormat::nf4, QuantFormat::int8}) {
    SCOPED_TRACE(name_of(format));
    const std::int64_t cols = format == QuantFormat::nf4 || format == QuantFormat::int8 ? 323 : 512;
    const auto x = weights(rows, cols);
    const auto y = read(format, write(format, x, rows, cols), rows, cols);
    double error = 0, power = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      error += (x[i] - y[i]) * (x[i] - y[i]);
      power += x[i] * x[i];
    }
    const double relative = std::sqrt(error / power);
    const bool bytes = format == QuantFormat::q8_0 || format == QuantFormat::int8;
    EXPECT_LT(relative, bytes ? 0.01 : format == QuantFormat::q4_k ? 0.08 : 0.13);
    EXPECT_GT(relative, bytes ? 0.0005 : 0.01);
  }
}

// What came out of blocks goes into the same blocks again.
TEST_F(QuantizedTest, WritingAgainChangesLittle) {
  for (const QuantFormat format : {QuantFormat::q8_0, QuantFormat::q4_0, QuantFormat::int8}) {
    const auto once = read(format, write(format, weights(4, 256), 4, 256), 4, 256);
    const auto twice = read(format, write(format, once, 4, 256), 4, 256);
    for (std::size_t i = 0; i < once.size(); ++i)
      EXPECT_NEAR(twice[i], once[i], 0.002 * (1 + std::abs(once[i]))) << name_of(format) << i;
  }
}

TEST_F(QuantizedTest, ConstantAndZeroRows) {
  for (int f = 0; f < kNumQuantFormats; ++f) {
    const auto format = static_cast<QuantFormat>(f);
    if (!can_quantize(format)) continue;
    for (const float value : {0.0f, 3.0f, -0.25f, 1e-30f}) {
      const std::vector<float> x(512, value);
      const auto y = read(format, write(format, x, 2, 256), 2, 256);
      for (const float v : y) ASSERT_NEAR(v, value, 0.01 * std::abs(value) + 1e-7) << name_of(format);
    }
  }
}

TEST_F(QuantizedTest, AnyNumberOfThreadsWritesTheSame) {
  const auto x = weights(64, 1024);
  for (const QuantFormat format : {QuantFormat::q4_k, QuantFormat::nf4, QuantFormat::q8_0}) {
    context.threads = 1;
    const Bytes one = write(format, x, 64, 1024);
    context.threads = 2;
    EXPECT_EQ(one, write(format, x, 64, 1024)) << name_of(format);
  }
}

TEST_F(QuantizedTest, ReadsBf16Input) {
  auto x = weights(2, 256);
  std::vector<bf16> narrow;
  for (float& v : x) {
    narrow.push_back(to_bf16(v));
    v = to_f32(narrow.back());
  }
  Bytes out(static_cast<std::size_t>(2 * row_bytes(QuantFormat::q4_k, 256)));
  quantize_rows(context, QuantFormat::q4_k, {narrow.data(), DType::bf16, 2, 256, 256},
                reinterpret_cast<std::byte*>(out.data()));
  EXPECT_EQ(out, write(QuantFormat::q4_k, x, 2, 256));
}

TEST(DynamicCode, Landmarks) {
  const auto& code = dynamic_code();
  EXPECT_FLOAT_EQ(code[0], -0.99296874f);
  EXPECT_FLOAT_EQ(code[126], -5.5e-7f);
  EXPECT_EQ(code[127], 0);
  EXPECT_FLOAT_EQ(code[128], 5.5e-7f);
  EXPECT_FLOAT_EQ(code[254], 0.99296874f);
  EXPECT_EQ(code[255], 1);
}

TEST(QuantFormats, NamesAndSizes) {
  for (int f = 0; f < kNumQuantFormats; ++f) {
    const auto format = static_cast<QuantFormat>(f);
    EXPECT_EQ(quant_format_from_name(name_of(format)), format);
  }
  EXPECT_EQ(quant_format_from_name("q4_k"), QuantFormat::q4_k);
  EXPECT_FALSE(quant_format_from_name("q4_k_m").has_value());
  EXPECT_EQ(row_bytes(QuantFormat::q6_k, 512), 420);
  EXPECT_EQ(row_bytes(QuantFormat::nf4, 64 * 257 + 1), 4 + 8 + 258 + 8225);
  EXPECT_FALSE(fits(QuantFormat::q4_k, 128));
  EXPECT_TRUE(fits(QuantFormat::nf4, 1));
  for (const QuantFormat format : kBlockFormats) EXPECT_TRUE(fits(format, 256)) << name_of(format);
}

}  // namespace
}  // namespace lode::test
