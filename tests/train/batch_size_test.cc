// per_device_train_batch_size: auto cuts the same steps into what fits.
#include "train/batch_size.h"

#include <gtest/gtest.h>

#include "train/trainer_testing.h"

namespace lode {
namespace {

Overrides with(Overrides first, const Overrides& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

class BatchSize : public testing::Test {
 protected:
  // Wide enough for a row to be more than what memory is rounded to.
  BatchSize() {
    write_file_atomically(
        real_files(), run_ / "wide.json",
        R"({"model_type": "llama", "vocab_size": 300, "hidden_size": 64, "intermediate_size": 8192,
            "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
            "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": true})");
  }

  std::size_t peak_of(const Overrides& overrides) const {
    const Recipe recipe = run_.recipe(overrides);
    const ModelParts parts =
        read_model_parts(real_files(), recipe.model_name_or_path, recipe.tokenizer_name_or_path);
    Log log(false);
    const DataSets data = prepare_data_sets(real_files(), recipe, parts.tokenizer, 1, log);
    return plan_memory(real_files(), recipe, parts, recipe.model_name_or_path, data).peak();
  }
  std::size_t peak_of_rows(std::int64_t rows) const {
    return peak_of(with(base_, {format("per_device_train_batch_size={}", rows)}));
  }

  struct Cut {
    std::int64_t rows, times;
    std::string why;
    friend bool operator==(const Cut& a, const Cut& b) { return a.rows == b.rows && a.times == b.times; }
  };
  Cut cut_of(const std::string& output) const {
    const std::string file = run_ / (output + "/run.json");
    const Json record = parse_json(real_files().read(file), file);
    Cut cut{record.at("batch").at("micro_batch_rows").as_int(),
            record.at("batch").at("micro_batches").as_int(), ""};
    for (const Json& fact : record.at("optimisations").as_array()) {
      if (fact.at("name").as_string() != "micro-batch") continue;
      EXPECT_EQ(fact.at("asked").as_string(), "auto");
      EXPECT_EQ(fact.at("chosen").as_string(), format("{} rows x {}", cut.rows, cut.times));
      cut.why = fact.at("why").as_string();
    }
    return cut;
  }
  static std::string limit(std::size_t bytes) { return format("memory_limit={}B", bytes); }

  const Overrides base_ = {
      "model_name_or_path=@/wide.json", "max_steps=4",     "save_steps=2", "adam_epsilon=1e-2",
      "overwrite_output_dir=true",      "eval_strategy=no"};
  const Overrides auto_ = with(base_, {"per_device_train_batch_size=auto"});
  TinyRun run_;
};

TEST_F(BatchSize, TakesTheLargestThatFits) {
  const std::size_t allowed = peak_of_rows(6);
  run_.train(with(auto_, {limit(allowed)}));
  const Cut cut = cut_of("out");
  EXPECT_GE(cut.rows, 6);
  EXPECT_EQ(cut.times, 1);
  EXPECT_LE(peak_of_rows(cut.rows), allowed);
  EXPECT_GT(peak_of_rows(cut.rows + 1), allowed);
  EXPECT_NE(cut.why.find("give global_batch_size"), std::string::npos) << cut.why;
  EXPECT_NE(cut.why.find(format("{} rows take {}", cut.rows + 1, format_bytes(peak_of_rows(cut.rows + 1)))),
            std::string::npos)
      << cut.why;
  EXPECT_EQ(recipe_from_text(real_files().read(run_ / "out/recipe.yaml"), "r").per_device_train_batch_size,
            cut.rows);
  const RunTrace chosen = trace_of(run_ / "out");
  run_.train(with(base_, {format("per_device_train_batch_size={}", cut.rows)}));
  EXPECT_TRUE(trace_of(run_ / "out") == chosen);
  // Each micro-batch at most so large; the number of them is the recipe's.
  run_.train(with(auto_, {limit(allowed), "gradient_accumulation_steps=2"}));
  EXPECT_EQ(cut_of("out").times, 2);
}

TEST_F(BatchSize, NoLargerThanTheDataSet) {
  run_.train(with(auto_, {"memory_limit=100TiB", "max_samples=10", "packing=false"}));
  EXPECT_EQ(cut_of("out"), (Cut{10, 1, ""}));
}

TEST_F(BatchSize, OnlyCutsTheGlobalBatch) {
  const Overrides global = with(auto_, {"global_batch_size=12"});
  run_.train(with(global, {"memory_limit=100TiB", "output_dir=@/whole"}));
  EXPECT_EQ(cut_of("whole"), (Cut{12, 1, ""}));
  run_.train(with(global, {limit(peak_of_rows(4)), "output_dir=@/cut"}));
  const Cut cut = cut_of("cut");
  EXPECT_LT(cut.rows, 12);
  EXPECT_EQ(cut.rows * cut.times, 12);
  const auto whole = metrics_of(run_ / "whole"), parts = metrics_of(run_ / "cut");
  ASSERT_EQ(whole.size(), parts.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(whole[i].at("samples").as_int(), parts[i].at("samples").as_int());
    EXPECT_NEAR(whole[i].at("loss").as_double(), parts[i].at("loss").as_double(), 1e-5);
  }
  // The number in place of auto is the same run.
  run_.train(with(base_, {"global_batch_size=12", format("per_device_train_batch_size={}", cut.rows)}));
  EXPECT_TRUE(trace_of(run_ / "out") == trace_of(run_ / "cut"));
  // Gradients that live until their update alone cannot be accumulated: all or nothing.
  const Overrides fused = with(global, {"optim_in_backward=true", "max_grad_norm=0", "output_dir=@/fused"});
  run_.train(with(fused, {"memory_limit=100TiB"}));
  EXPECT_EQ(cut_of("fused"), (Cut{12, 1, ""}));
}

TEST_F(BatchSize, AResumedRunKeepsItsSteps) {
  const std::size_t allowed = peak_of_rows(6);
  run_.train(with(auto_, {limit(allowed)}));
  const Cut cut = cut_of("out");
  const RunTrace unbroken = trace_of(run_ / "out");
  const std::int64_t samples = metrics_of(run_ / "out").back().at("samples").as_int();
  const std::string from = "resume_from_checkpoint=" + run_ / "out/checkpoint-2";
  // With more memory nothing changes.
  run_.train(with(auto_, {"memory_limit=100TiB", from}));
  EXPECT_EQ(cut_of("out"), cut);
  EXPECT_TRUE(trace_of(run_ / "out") == unbroken);
  EXPECT_NE(cut_of("out").why.find("as before the save"), std::string::npos);
  // With less the same steps are cut into smaller pieces.
  run_.train(with(auto_, {limit(peak_of_rows(1)), from}));
  const Cut smaller = cut_of("out");
  EXPECT_LT(smaller.rows, cut.rows);
  EXPECT_EQ(smaller.rows * smaller.times, cut.rows);
  EXPECT_EQ(metrics_of(run_ / "out").back().at("samples").as_int(), samples);
  EXPECT_NE(
      run_.error(with(auto_, {format("global_batch_size={}", cut.rows + 1), from})).find("global batch"),
      std::string::npos);
}

TEST_F(BatchSize, WhenOneRowDoesNotFitThePlanSaysSo) {
  const std::string error = run_.error(with(auto_, {"memory_limit=100MiB"}));
  EXPECT_NE(error.find("memory_limit allows 100"), std::string::npos) << error;
  EXPECT_NE(error.find("largest micro-batch: 128 tokens"), std::string::npos) << error;
}

TEST_F(BatchSize, StreamsToo) {
  const Overrides stream = {"streaming=true", "packing_strategy=blocks", "global_batch_size=8",
                            "memory_limit=100TiB"};
  run_.train(with(auto_, stream));
  EXPECT_EQ(cut_of("out"), (Cut{8, 1, ""}));
  EXPECT_EQ(metrics_of(run_ / "out").back().at("samples").as_int(), 4 * 8);
}

TEST_F(BatchSize, WithinActivationMemory) {
  run_.train(with(auto_, {"memory_limit=100TiB", "global_batch_size=64", "activation_policy=auto",
                          "activation_memory=100MiB"}));
  const Cut cut = cut_of("out");
  EXPECT_LT(cut.rows, 64);
  EXPECT_NE(cut.why.find("more than activation_memory"), std::string::npos) << cut.why;
}

TEST_F(BatchSize, KeysThatContradictAreNamed) {
  const auto problem = [&](const Overrides& keys) { return error_of([&] { run_.recipe(keys); }); };
  const auto has = [&](const Overrides& keys, const std::string& part) {
    EXPECT_NE(problem(keys).find(part), std::string::npos) << part << "\n" << problem(keys);
  };
  has(with(auto_, {"memory_limit=none"}), "set memory_limit to auto or a size");
  has({"per_device_train_batch_size=all"}, "expected an integer or auto");
  has({"per_device_train_batch_size=0"}, "expected an integer from 1 to 1048576");
  has({"global_batch_size=8", "gradient_accumulation_steps=2"}, "keep one");
  has({"global_batch_size=6"},
      "global_batch_size: 6 (command line) is no multiple of "
      "per_device_train_batch_size: 4 (command line)");
  has({"global_batch_size=8", "optim_in_backward=true", "max_grad_norm=0"},
      "gradient_accumulation_steps: 2 (command line) contradict");
  const Recipe recipe = run_.recipe({"global_batch_size=8"});
  EXPECT_EQ(recipe.gradient_accumulation_steps, 2);
  const std::string yaml = recipe.to_yaml();
  EXPECT_EQ(recipe_from_text(yaml, "again").gradient_accumulation_steps, 2);
  const std::string halved = "per_device_train_batch_size=2";
  EXPECT_EQ(recipe_from_text(yaml, "again", {&halved, 1}).gradient_accumulation_steps, 4);
  EXPECT_NE(run_.recipe(auto_).to_yaml().find("per_device_train_batch_size: auto"), std::string::npos)
      << run_.recipe(auto_).to_yaml();
}

}  // namespace
}  // namespace lode
