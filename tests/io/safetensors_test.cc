#include "io/safetensors.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <numeric>

#include "safetensors_bytes.h"
#include "temp_folder.h"

namespace lode {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

class Safetensors : public ::testing::Test {
 protected:
  std::string error_of_file(std::string_view bytes) {
    write_bytes(path_, bytes);
    EXPECT_EQ(kind_of([&] { SafetensorsFile file(real_files(), path_); }), ErrorKind::data);
    const std::string message = error_of([&] { SafetensorsFile file(real_files(), path_); });
    EXPECT_TRUE(message.starts_with(path_)) << message;
    EXPECT_LT(message.size(), 900u);
    return message;
  }
  std::string error_of_header(std::string_view header, std::size_t data = 0) {
    return error_of_file(safetensors_bytes(header, std::string(data, 'x')));
  }

  TempFolder folder_;
  std::string path_ = folder_ / "t.safetensors";
};

TEST_F(Safetensors, ReadsWhatTheFormatAllows) {
  std::string header = R"({"b":{"dtype":"I64","shape":[1],"data_offsets":[8,16]},"__metadata__":{"k":"v"},)"
                       R"("a":{"shape":[2,1],"dtype":"F32","data_offsets":[0,8]},)"
                       R"("zero":{"dtype":"BF16","shape":[0,5],"data_offsets":[8,8]},)"
                       R"("four":{"dtype":"F4","shape":[2],"data_offsets":[17,18]},)"
                       R"("s":{"dtype":"U8","shape":[],"data_offsets":[16,17]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  write_bytes(path_, safetensors_bytes(header, std::string("\0\0\x80\x3f\0\0\0\x40", 8) + "12345678" + "u4"));
  const SafetensorsFile file(real_files(), path_);
  ASSERT_EQ(file.tensors().size(), 5u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.tensors()[1].name, "zero");
  EXPECT_EQ(file.metadata().at("k"), "v");
  EXPECT_EQ(file.find("b")->shape, Shape{1});
  EXPECT_EQ(file.find("nothing"), nullptr);
  EXPECT_EQ(bytes_of(file.bytes(*file.find("s"))), Bytes{std::byte('u')});
  EXPECT_NE(error_of([&] { file.view(*file.find("b")); }).find("I64"), std::string::npos);
  EXPECT_TRUE(file.view(*file.find("zero")).empty());
  EXPECT_EQ(file.view(*file.find("a")).row<float>(1)[0], 2.0f);
}

TEST_F(Safetensors, EmptyTableMeansEmptyBuffer) {
  write_bytes(path_, safetensors_bytes("{}", ""));
  EXPECT_TRUE(SafetensorsFile(real_files(), path_).tensors().empty());
  EXPECT_NE(error_of_header("{}", 1).find("need 0 bytes"), std::string::npos);
}

TEST_F(Safetensors, RefusesBrokenHeaders) {
  EXPECT_NE(error_of_file("").find("0 bytes"), std::string::npos);
  EXPECT_NE(error_of_file("1234567").find("7 bytes"), std::string::npos);
  EXPECT_NE(error_of_file(safetensors_bytes("{}", "", 100'000'001)).find("at most 100000000"),
            std::string::npos);
  EXPECT_NE(error_of_file(safetensors_bytes("{}", "", UINT64_MAX)).find("at most"), std::string::npos);
  EXPECT_NE(error_of_file(safetensors_bytes("{}", "", 3)).find("cut off"), std::string::npos);
  for (const std::string_view header :
       {"", " {}", "[]", "{", "{}{}", "{\"a\":1}", "{\"a\":[]}", "{\"a\":null}", "\xef\xbb\xbf{}",
        "{\"\xff\":1}", "{\"__metadata__\":[]}", "{\"__metadata__\":{\"k\":1}}",
        "{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}"}) {
    EXPECT_NE(error_of_header(header), "") << header;
  }
  EXPECT_NE(error_of_header("{\"a\":" + std::string(10, '[') + std::string(10, ']') + "}").find("8 levels"),
            std::string::npos);
}

// One tensor entry put together from its three parts.
std::string entry(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return format(R"({{"a":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape, offsets);
}

TEST_F(Safetensors, RefusesBrokenEntries) {
  struct Case {
    std::string header;
    std::size_t data;
    std::string_view said;
  };
  const Case cases[] = {
      {entry("\"F31\"", "[1]", "[0,4]"), 4, "unknown dtype \"F31\""},
      {entry("7", "[1]", "[0,4]"), 4, "expected exactly dtype"},
      {entry("\"F32\"", "1", "[0,4]"), 4, "expected exactly dtype"},
      {entry("\"F32\"", "[1]", "[0]"), 4, "two data_offsets"},
      {entry("\"F32\"", "[1]", "[0,4,8]"), 4, "two data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4, "exactly"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "exactly"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, "twice"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       1, "twice"},
      {entry("\"F32\"", "[-1]", "[0,4]"), 4, "whole numbers"},
      {entry("\"F32\"", "[1.0]", "[0,4]"), 4, "whole numbers"},
      {entry("\"F32\"", "[\"1\"]", "[0,4]"), 4, "whole numbers"},
      {entry("\"F32\"", "[1]", "[0,9223372036854775808]"), 4, "whole numbers"},
      {entry("\"F32\"", "[1]", "[-4,0]"), 4, "whole numbers"},
      {entry("\"F32\"", "[1]", "[4,0]"), 4, "behind its end"},
      {entry("\"F32\"", "[1]", "[0,8]"), 8, "needs 4 bytes"},
      {entry("\"F32\"", "[4611686018427387904,4]", "[0,0]"), 0, "too large"},
      {entry("\"U8\"", "[9223372036854775807,9223372036854775807]", "[0,1]"), 1, "too large"},
      {entry("\"F4\"", "[3]", "[0,1]"), 1, "whole bytes"},
      {entry("\"F6_E2M3\"", "[1]", "[0,1]"), 1, "whole bytes"},
      {entry("\"U8\"", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, "17 dimensions"},
      {entry("\"F32\"", "[1]", "[4,8]"), 8, "begins at 4"},
      {entry("\"F32\"", "[1]", "[0,4]"), 5, "the file holds 5"},
      {entry("\"F32\"", "[2]", "[0,8]"), 7, "the file holds 7"},
      {R"({"a\u0000b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "NUL"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "\"b\" begins at 1"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
       2, "begins at 0"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
       5, "\"b\" begins at 3"},
  };
  for (const Case& c : cases) {
    const std::string message = error_of_header(c.header, c.data);
    EXPECT_NE(message.find(c.said), std::string::npos) << c.header << "\n" << message;
  }
}

TEST_F(Safetensors, ManyValuesInATinyFileAreRefused) {
  std::string header = "{\"a\":{\"dtype\":\"U8\",\"shape\":[0";
  for (int i = 0; i < 300'000; ++i) header += ",0";
  header += "],\"data_offsets\":[0,0]}}";
  EXPECT_NE(error_of_header(header).find("values"), std::string::npos);
}

TEST_F(Safetensors, RefusesPicklesByName) {
  for (const std::string_view name : {"pytorch_model.bin", "x.pt", "y.pth", "z.ckpt"}) {
    const std::string path = folder_ / name;
    write_bytes(path, "PK");
    EXPECT_NE(error_of([&] { SafetensorsFile file(real_files(), path); }).find("safetensors"),
              std::string::npos);
  }
}

TEST_F(Safetensors, WriterSortsAlignsAndConverts) {
  std::vector<float> numbers(6);
  std::iota(numbers.begin(), numbers.end(), 0.5f);
  const std::vector<std::int32_t> ints{7, -8};
  const ConstView matrix{numbers.data(), DType::f32, 2, 3, 3};
  const std::vector<TensorSpec> specs{{"half", DType::bf16, {2, 3}},         {"z", DType::f32, {6}},
                                      {"a", DType::f32, {3, 2}, true},       {"n", DType::i32, {2}},
                                      {"none", DType::f32, {0, 4}},          {"scalar", DType::f16, {}},
                                      {"part", DType::f32, {2, 1, 2}, false}};
  const ConstView views[] = {matrix,
                             {numbers.data(), DType::f32, 1, 6, 6},
                             matrix,
                             view_of(std::span(ints)),
                             {nullptr, DType::f32, 0, 4, 4},
                             {numbers.data() + 1, DType::f32, 1, 1, 1},
                             matrix.slice_cols(1, 2)};
  const WrittenFile written =
      write_safetensors(real_files(), path_, specs, [&](std::size_t i) { return views[i]; });
  EXPECT_EQ(real_files().list(folder_.path()).size(), 1u);

  const SafetensorsFile file(real_files(), path_);
  std::vector<std::string> names;
  for (const TensorInfo& info : file.tensors()) names.push_back(info.name);
  std::vector<std::string> expected{"a", "none", "part", "z", "n", "half", "scalar"};
  if (names[0] == "none") std::swap(names[0], names[1]);  // both begin at 0 only if "a" came second
  EXPECT_EQ(names, expected);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ((file.file_bytes().size() - 6 * 4 * 2 - 16 - 8 - 12 - 2) % 8, 0u);
  EXPECT_EQ(written.size, file.file_bytes().size());
  EXPECT_EQ(written.size, SafetensorsWriter::file_size(specs));
  EXPECT_EQ(written.hash, hash_bytes(file.file_bytes()));
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const TensorInfo* info = file.find(specs[i].name);
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->shape, specs[i].shape);
    EXPECT_EQ(written.tensor_hashes[i], hash_bytes(file.bytes(*info))) << specs[i].name;
  }
  EXPECT_EQ(file.view(*file.find("a")).row<float>(2)[1], 5.5f);
  EXPECT_EQ(file.view(*file.find("a")).row<float>(0)[1], 3.5f);
  EXPECT_EQ(to_f32(file.view(*file.find("half")).row<bf16>(1)[0]), 3.5f);
  EXPECT_EQ(to_f32(file.view(*file.find("scalar")).row<f16>(0)[0]), 1.5f);
  EXPECT_EQ(file.view(*file.find("part")).row<float>(1)[1], 5.5f);
  EXPECT_EQ(file.view(*file.find("n")).row<std::int32_t>(0)[1], -8);
}

// Larger than the writer's buffer in each way: many rows, one long row, transposed.
TEST_F(Safetensors, WriterSplitsLargeTensors) {
  constexpr std::int64_t kRows = 700, kCols = 1001;
  std::vector<float> numbers(kRows * kCols);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  const ConstView matrix{numbers.data(), DType::f32, kRows, kCols, kCols};
  const ConstView row{numbers.data(), DType::f32, 1, kRows * kCols, kRows * kCols};
  const ConstView column{numbers.data(), DType::f32, kRows * kCols, 1, 1};
  const std::vector<TensorSpec> specs{{"same", DType::f32, {kRows, kCols}},
                                      {"turned", DType::f32, {kCols, kRows}, true},
                                      {"row", DType::bf16, {kRows * kCols}},
                                      {"column", DType::f32, {kRows * kCols}, true},
                                      {"cut", DType::f32, {kRows, kCols - 1}}};
  const ConstView views[] = {matrix, matrix, row, column, matrix.slice_cols(1, kCols - 1)};
  write_safetensors(real_files(), path_, specs, [&](std::size_t i) { return views[i]; });
  const SafetensorsFile file(real_files(), path_);
  const ConstView same = file.view(*file.find("same")), turned = file.view(*file.find("turned")),
                  wide = file.view(*file.find("row")), tall = file.view(*file.find("column")),
                  cut = file.view(*file.find("cut"));
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t c = 0; c < kCols; ++c) {
      const float x = numbers[static_cast<std::size_t>(r * kCols + c)];
      ASSERT_EQ(same.row<float>(r)[c], x);
      ASSERT_EQ(turned.row<float>(c)[r], x);
      ASSERT_EQ(wide.row<bf16>(0)[r * kCols + c].bits, to_bf16(x).bits);
      ASSERT_EQ(tall.row<float>(0)[r * kCols + c], x);
      if (c > 0) {
        ASSERT_EQ(cut.row<float>(r)[c - 1], x);
      }
    }
  }
}

TEST_F(Safetensors, WritingIsAtomic) {
  const std::vector<float> x{1, 2, 3};
  const std::vector<TensorSpec> specs{{"x", DType::f32, {3}}};
  const auto save = [&](FileSystem& files) {
    write_safetensors(files, path_, specs, [&](std::size_t) { return view_of(std::span(x)); });
  };
  save(real_files());
  for (std::int64_t n = 1; n <= 6; ++n) {
    FailingFiles failing(real_files(), n, ENOSPC, false);
    EXPECT_NE(error_of([&] { save(failing); }), "") << n;
    EXPECT_EQ(SafetensorsFile(real_files(), path_).tensors().size(), 1u);
    EXPECT_EQ(real_files().list(folder_.path()).size(), 1u);
  }
}

TEST_F(Safetensors, WrongViewsAreOurBugs) {
  const std::vector<float> x{1, 2, 3};
  const auto save = [&](TensorSpec spec) {
    write_safetensors(real_files(), path_, {std::move(spec)},
                      [&](std::size_t) { return view_of(std::span(x)); });
  };
  EXPECT_EQ(kind_of([&] { save({"x", DType::f32, {4}}); }), ErrorKind::internal);
  EXPECT_EQ(kind_of([&] { save({"x", DType::i32, {3}}); }), ErrorKind::internal);
  EXPECT_EQ(kind_of([&] {
              SafetensorsWriter::file_size(std::vector<TensorSpec>{{"x"}, {"x"}});
            }),
            ErrorKind::internal);
}

}  // namespace
}  // namespace lode
