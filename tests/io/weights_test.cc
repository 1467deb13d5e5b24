#include "io/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "safetensors_bytes.h"
#include "temp_folder.h"

namespace lode {
namespace {

class Weights : public ::testing::Test {
 protected:
  void save(std::string_view name, const std::vector<TensorSpec>& specs, float first) {
    std::vector<float> numbers(64);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = first + static_cast<float>(i);
    write_safetensors(real_files(), folder_ / name, specs, [&](std::size_t i) {
      const MatrixSize size = matrix_size(specs[i].shape);
      return ConstView{numbers.data(), DType::f32, size.rows, size.cols, size.cols};
    });
  }
  WeightSet open() { return WeightSet(real_files(), folder_.path()); }
  std::string open_error() {
    return error_of([&] { open(); });
  }

  TempFolder folder_;
};

TEST_F(Weights, LoadsWithConversionAndTransposition) {
  save("model.safetensors", {{"f", DType::f32, {3, 5}}, {"h", DType::bf16, {2, 4}}, {"s", DType::f16, {}}},
       1);
  const WeightSet weights = open();
  std::vector<float> f(15), h(8), s(1);
  std::vector<bf16> narrow(2 * 12);
  LoadOptions options{.threads = 2};
  load_tensors(weights,
               {{"f", {3, 5}, {f.data(), DType::f32, 5, 3, 3}, true},
                {"h", {2, 4}, {h.data(), DType::f32, 2, 4, 4}},
                {"s", {}, {s.data(), DType::f32, 1, 1, 1}}},
               options);
  EXPECT_EQ(f[0], 1);
  EXPECT_EQ(f[1], 6);  // row 1, column 0 of the file
  EXPECT_EQ(f[14], 15);
  EXPECT_EQ(h, (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(s[0], 1);
  options.may_ignore = [](std::string_view name) { return name != "h"; };
  load_tensors(weights, {{"h", {2, 4}, View{narrow.data() + 1, DType::bf16, 2, 4, 12}}}, options);
  EXPECT_EQ(to_f32(narrow[12 + 1 + 3]), 8);
  EXPECT_EQ(narrow[5].bits, 0);
}

// The header's length is free, so data may lie at odd addresses.
TEST_F(Weights, LoadsUnalignedData) {
  for (std::size_t pad = 0; pad < 8; ++pad) {
    const std::string header =
        R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})" + std::string(pad, ' ');
    write_bytes(folder_ / "model.safetensors",
                safetensors_bytes(header, std::string("\0\0\x80\x3f\0\0\0\x40", 8)));
    std::vector<float> x(2);
    load_tensors(open(), {{"x", {2}, {x.data(), DType::f32, 1, 2, 2}}}, {});
    EXPECT_EQ(x, (std::vector<float>{1, 2}));
  }
}

TEST_F(Weights, LoadsDoubles) {
  const double numbers[] = {0.1, -2, 1e300, 3, 4, 5};
  std::string data(sizeof(numbers), '\0');
  std::memcpy(data.data(), numbers, sizeof(numbers));
  write_bytes(folder_ / "model.safetensors",
              safetensors_bytes(R"({"x":{"dtype":"F64","shape":[2,3],"data_offsets":[0,48]}})", data));
  std::vector<float> x(6);
  load_tensors(open(), {{"x", {2, 3}, {x.data(), DType::f32, 3, 2, 2}, true}}, {.threads = 2});
  EXPECT_EQ(x, (std::vector<float>{0.1f, 3, -2, 4, INFINITY, 5}));
  std::vector<std::int32_t> whole(6);
  EXPECT_NE(error_of([&] {
              load_tensors(open(), {{"x", {2, 3}, {whole.data(), DType::i32, 2, 3, 3}}}, {});
            }).find("expected I32, found F64"),
            std::string::npos);
}

TEST_F(Weights, PickledFilesAreRefusedByName) {
  EXPECT_NE(open_error().find("no model.safetensors"), std::string::npos);
  for (const std::string_view name : {"consolidated.00.pth", "pytorch_model-00001-of-00002.bin", "x.pt"})
    write_bytes(folder_ / name, "PK");
  write_bytes(folder_ / "training_args.bin", "PK");
  const std::string message = open_error();
  EXPECT_NE(message.find("has only consolidated.00.pth, pytorch_model-00001-of-00002.bin, x.pt;"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("save_pretrained"), std::string::npos) << message;
}

TEST_F(Weights, LargeTensorsAreSplitOverThreads) {
  constexpr std::int64_t kRows = 3000, kCols = 1000;
  std::vector<float> numbers(kRows * kCols), back(kRows * kCols), turned(kRows * kCols);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i) * 0.25f;
  write_safetensors(real_files(), folder_ / "model.safetensors", {{"x", DType::f32, {kRows, kCols}}},
                    [&](std::size_t) {
                      return ConstView{numbers.data(), DType::f32, kRows, kCols, kCols};
                    });
  load_tensors(open(), {{"x", {kRows, kCols}, {back.data(), DType::f32, kRows, kCols, kCols}}},
               {.threads = 3});
  EXPECT_EQ(back, numbers);
  load_tensors(open(), {{"x", {kRows, kCols}, {turned.data(), DType::f32, kCols, kRows, kRows}, true}},
               {.threads = 3});
  for (std::int64_t r = 0; r < kRows; r += 7) {
    for (std::int64_t c = 0; c < kCols; ++c) {
      ASSERT_EQ(turned[static_cast<std::size_t>(c * kRows + r)],
                numbers[static_cast<std::size_t>(r * kCols + c)]);
    }
  }
}

TEST_F(Weights, AllProblemsAreNamedAndNothingIsCopied) {
  save("model.safetensors",
       {{"good", DType::f32, {2}},
        {"shape", DType::f32, {2, 3}},
        {"type", DType::f32, {2}},
        {"extra", DType::f32, {1}}},
       1);
  std::vector<float> good(2), shape(6);
  std::vector<std::int32_t> type(2);
  const std::string message = error_of([&] {
    load_tensors(open(),
                 {{"good", {2}, {good.data(), DType::f32, 1, 2, 2}},
                  {"shape", {3, 2}, {shape.data(), DType::f32, 3, 2, 2}},
                  {"type", {2}, {type.data(), DType::i32, 1, 2, 2}},
                  {"absent", {7}, {shape.data(), DType::f32, 1, 7, 7}}},
                 {});
  });
  for (const std::string_view part :
       {"\"shape\": expected shape [3, 2], found [2, 3]", "\"type\": expected I32, found F32",
        "\"absent\" [7] is missing", "\"extra\" [1] is not expected"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  EXPECT_EQ(message.find("good"), std::string::npos);
  EXPECT_EQ(good, (std::vector<float>{0, 0}));
}

TEST_F(Weights, ManyProblemsAreCounted) {
  save("model.safetensors", {{"x", DType::f32, {1}}}, 0);
  std::vector<float> x(1);
  std::vector<TensorTarget> targets;
  for (int i = 0; i < 200; ++i) targets.push_back({format("t{}", i), {1}, {x.data(), DType::f32, 1, 1, 1}});
  const std::string message = error_of([&] { load_tensors(open(), targets, {}); });
  EXPECT_NE(message.find("and 151 more"), std::string::npos) << message;
}

TEST_F(Weights, ShardedModels) {
  save("model-00001-of-00002.safetensors", {{"a", DType::f32, {2}}}, 10);
  save("model-00002-of-00002.safetensors", {{"b", DType::f32, {2}}}, 20);
  write_bytes(folder_ / "model.safetensors.index.json",
              R"({"metadata": {"total_size": 16}, "weight_map": {"a": "model-00001-of-00002.safetensors",)"
              R"( "b": "model-00002-of-00002.safetensors"}})");
  std::vector<float> a(2), b(2);
  load_tensors(
      open(), {{"a", {2}, {a.data(), DType::f32, 1, 2, 2}}, {"b", {2}, {b.data(), DType::f32, 1, 2, 2}}}, {});
  EXPECT_EQ(a[1], 11);
  EXPECT_EQ(b[1], 21);
  save("model.safetensors", {{"c", DType::f32, {2}}}, 0);  // comes before the index
  EXPECT_TRUE(open().tensors().contains("c"));
}

TEST_F(Weights, BadIndexes) {
  const std::string index = folder_ / "model.safetensors.index.json";
  save("s.safetensors", {{"a", DType::f32, {2}}}, 0);
  save("t.safetensors", {{"a", DType::f32, {2}}, {"b", DType::f32, {2}}}, 0);
  const auto message = [&](std::string_view text) {
    write_bytes(index, text);
    return open_error();
  };
  EXPECT_NE(message("{}").find("weight_map"), std::string::npos);
  EXPECT_NE(message(R"({"weight_map": []})").find("weight_map"), std::string::npos);
  for (const std::string_view name : {"../s.safetensors", "/etc/s.safetensors", "x/s.safetensors",
                                      "..\\\\s.safetensors", "s.bin", "", "s\\u0000.safetensors"}) {
    EXPECT_NE(message(format(R"({{"weight_map": {{"a": "{}"}}}})", name)).find("beside the index"),
              std::string::npos);
  }
  EXPECT_NE(message(R"({"weight_map": {"a": 1}})").find("beside the index"), std::string::npos);
  EXPECT_NE(message(R"({"weight_map": {"a": "s.safetensors", "b": "s.safetensors"}})")
                .find("\"b\" in s.safetensors"),
            std::string::npos);
  EXPECT_NE(message(R"({"weight_map": {"a": "s.safetensors", "b": "t.safetensors"}})").find("in both"),
            std::string::npos);
  EXPECT_NE(message(R"({"weight_map": {"a": "gone.safetensors"}})").find("gone.safetensors"),
            std::string::npos);
}

TEST_F(Weights, FoldersWithoutWeights) {
  EXPECT_NE(open_error().find("no model.safetensors"), std::string::npos);
}

}  // namespace
}  // namespace lode
