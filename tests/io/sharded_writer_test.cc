#include "io/sharded_writer.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/json.h"
#include "io/weights.h"
#include "temp_folder.h"

namespace lode {
namespace {

const std::vector<TensorSpec> kSpecs = {
    {"b", DType::f32, {4, 5}}, {"a", DType::bf16, {10}}, {"d", DType::f32, {40}}, {"c", DType::f16, {2, 2}}};

std::vector<std::string> write(const std::string& folder, std::uint64_t shard_bytes) {
  static std::vector<float> numbers(40);
  std::iota(numbers.begin(), numbers.end(), 0.0f);
  return write_sharded_safetensors(real_files(), folder, kSpecs, shard_bytes, [&](std::size_t i) {
    const MatrixSize size = matrix_size(kSpecs[i].shape);
    return ConstView{numbers.data(), DType::f32, size.rows, size.cols, size.cols};
  });
}

void expect_readable(const std::string& folder) {
  const WeightSet weights(real_files(), folder);
  EXPECT_EQ(weights.tensors().size(), kSpecs.size());
  std::vector<float> d(40), c(4);
  load_tensors(
      weights,
      {{"d", {40}, {d.data(), DType::f32, 1, 40, 40}}, {"c", {2, 2}, {c.data(), DType::f32, 2, 2, 2}}},
      {.may_ignore = [](std::string_view) { return true; }});
  EXPECT_EQ(d[39], 39);
  EXPECT_EQ(c, (std::vector<float>{0, 1, 2, 3}));
}

TEST(ShardedWriter, OneFileWithoutAnIndexWhenAllFits) {
  const TempFolder folder;
  EXPECT_EQ(write(folder.path(), 268), std::vector<std::string>{"model.safetensors"});
  EXPECT_FALSE(real_files().exists(folder / "model.safetensors.index.json"));
  expect_readable(folder.path());
}

// 80 + 20 bytes, then 160 alone because it is beyond the limit, then 8.
TEST(ShardedWriter, ShardsInOrderBehindAnIndex) {
  const TempFolder folder;
  EXPECT_EQ(write(folder.path(), 100),
            (std::vector<std::string>{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                      "model-00003-of-00003.safetensors", "model.safetensors.index.json"}));
  const Json index = parse_json(real_files().read(folder / "model.safetensors.index.json"), "index");
  EXPECT_EQ(index.at("metadata").at("total_size").as_int(), 80 + 20 + 160 + 8);
  EXPECT_EQ(index.at("weight_map").at("a").as_string(), "model-00001-of-00003.safetensors");
  EXPECT_EQ(index.at("weight_map").at("c").as_string(), "model-00003-of-00003.safetensors");
  EXPECT_EQ(index.at("weight_map").as_object().front().first, "a");
  expect_readable(folder.path());
}

}  // namespace
}  // namespace lode
