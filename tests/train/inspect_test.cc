// What a model on disk is said to be.
#include <gtest/gtest.h>

#include "models/weights.h"
#include "train/inspect_model.h"
#include "train/trainer_testing.h"

namespace lode {
namespace {

constexpr std::int64_t kVocab = 12, kHidden = 8;

// A model folder with a config and an embedding alone, whose rows are `row(id, column)`.
void write_embedding(const std::string& folder, const std::function<float(std::int64_t, std::int64_t)>& row) {
  real_files().make_directory(folder);
  write_file_atomically(
      real_files(), join_path(folder, "config.json"),
      R"({"model_type": "llama", "vocab_size": 12, "hidden_size": 8, "intermediate_size": 16,
          "num_hidden_layers": 1, "num_attention_heads": 2, "tie_word_embeddings": true})");
  std::vector<float> values;
  for (std::int64_t i = 0; i < kVocab * kHidden; ++i) values.push_back(row(i / kHidden, i % kHidden));
  const ConstView view{values.data(), DType::f32, kVocab, kHidden, kHidden};
  write_safetensors(real_files(), join_path(folder, "model.safetensors"),
                    {{"model.embed_tokens.weight", DType::bf16, {kVocab, kHidden}, false}},
                    [&](std::size_t) { return view; });
}

float learned(std::int64_t id, std::int64_t column) {
  return static_cast<float>((id * 7 + column * 5) % 11) - 4;
}

TEST(UntrainedRows, AreZeroEqualOrTheMean) {
  const TinyRun run;
  const std::string folder = run / "model";
  write_embedding(folder, learned);
  const auto find = [&](const std::vector<std::int32_t>& ids) {
    return find_untrained_rows(real_files(), folder, read_model_config(real_files(), folder), ids);
  };
  const std::vector<std::int32_t> special = {1, 3, 5, 7, 9};
  // Rows 0 and 11 are alike: 11 divides what the ids are multiplied by.
  EXPECT_EQ(find(special), std::vector<std::int32_t>{});
  write_embedding(folder, [](std::int64_t id, std::int64_t column) {
    if (id == 3) return 0.0f;
    return learned(id == 7 ? 2 : id, column);
  });
  EXPECT_EQ(find(special), (std::vector<std::int32_t>{3, 7})) << "zero; the row of another token";
  // Row 5 is the mean of the others, and so of all.
  write_embedding(folder, [](std::int64_t id, std::int64_t column) {
    if (id != 5) return learned(id, column);
    float sum = 0;
    for (std::int64_t other = 0; other < kVocab; ++other) sum += other == 5 ? 0 : learned(other, column);
    return sum / (kVocab - 1);
  });
  EXPECT_EQ(find(special), std::vector<std::int32_t>{5});
  EXPECT_EQ(find({}), std::vector<std::int32_t>{});
  EXPECT_EQ(find({-1, 12, 5}), std::vector<std::int32_t>{5}) << "ids without a row say nothing";
}

TEST(InspectModel, SaysAllProblemsOfAFolder) {
  const TinyRun run;
  const std::string folder = run / "model";
  write_embedding(folder, learned);
  const ModelInspection model = inspect_model(real_files(), folder);
  ASSERT_TRUE(model.config);
  EXPECT_FALSE(model.tokenizer);
  EXPECT_EQ(model.kind, "safetensors");
  // An embedding, two norms, the last norm, four matrices of attention and three of the MLP.
  EXPECT_EQ(model.parameters, 12 * 8 + 3 * 8 + 4 * 8 * 8 + 3 * 8 * 16);
  EXPECT_EQ(model.kv_bytes, 2 * 2 * 4 * 2);
  ASSERT_EQ(model.tensors.size(), 1u);
  EXPECT_EQ(model.tensors[0].format, "BF16");
  EXPECT_EQ(model.tensors[0].bytes, 12u * 8 * 2);
  EXPECT_EQ(model.problems.size(), 10u) << "every missing tensor";
  write_file_atomically(real_files(), join_path(folder, "config.json"), "{");
  EXPECT_FALSE(inspect_model(real_files(), folder).problems.empty());
  EXPECT_THROW(inspect_model(real_files(), run / "nowhere"), Error);
}

TEST(InspectModel, ReadsARunsCheckpoint) {
  const TinyRun run;
  const std::string checkpoint = run.train({"max_steps=1"}).result;
  const ModelInspection model = inspect_model(real_files(), checkpoint);
  EXPECT_TRUE(model.problems.empty()) << model.problems.front();
  ASSERT_TRUE(model.tokenizer);
  EXPECT_EQ(model.tokenizer->vocab_size(), 300);
  const Json json = model.to_json(true);
  EXPECT_EQ(json.at("tensors").at("list").size(), model.tensors.size());
  EXPECT_EQ(model.to_json(false).at("tensors").find("list"), nullptr);
  EXPECT_GT(model.training_flops, 6.0 * static_cast<double>(model.parameters - 300 * 32));
  EXPECT_GT(model.lines(true).size(), model.lines(false).size());
}

}  // namespace
}  // namespace lode
