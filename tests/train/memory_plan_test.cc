// The table before a run against what the run took.
#include "train/memory_plan.h"

#include <gtest/gtest.h>

#include "observe/system.h"
#include "train/step_time.h"
#include "train/trainer_testing.h"

namespace lode {
namespace {

struct Parts {
  Recipe recipe;
  ModelParts model;
  DataSets data;
};

Parts read(const TinyRun& run, const Overrides& overrides) {
  const Recipe recipe = run.recipe(overrides);
  ModelParts model = read_model_parts(real_files(), recipe.model_name_or_path, recipe.tokenizer_name_or_path);
  Log log;
  DataSets data = prepare_data_sets(real_files(), recipe, model.tokenizer, 1, log);
  return {recipe, std::move(model), std::move(data)};
}

MemoryPlan plan(const Parts& parts) {
  return plan_memory(real_files(), parts.recipe, parts.model, parts.recipe.model_name_or_path, parts.data);
}

// 67 million parameters a layer.
void write_wide_model(const TinyRun& run, int layers) {
  write_file_atomically(
      real_files(), run / "wide.json",
      format(R"({{"model_type": "llama", "vocab_size": 300, "hidden_size": 2048, "intermediate_size": 8192,
                 "num_hidden_layers": {}, "num_attention_heads": 16, "num_key_value_heads": 16,
                 "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": true}})",
             layers));
}

TEST(MemoryPlan, TheTableIsWhatTheRunTakes) {
  const TinyRun run;
  const std::vector<Overrides> variants = {
      {},
      {"bf16=true"},
      {"gradient_accumulation_steps=2"},
      {"optim=adamw_8bit", "optim_args='min_8bit_size=1'"},
      {"optim=adafactor"},
      {"packing=false", "per_device_train_batch_size=3"},
      {"num_threads=2", "bf16=true"},
      {"model_name_or_path=@/gpt2.json"},
  };
  for (const Overrides& variant : variants) {
    Overrides overrides = {"overwrite_output_dir=true", "save_strategy=no", "eval_strategy=no"};
    overrides.insert(overrides.end(), variant.begin(), variant.end());
    SCOPED_TRACE(variant.empty() ? "defaults" : variant.front());
    run.train(overrides);
    const Json record = parse_json(real_files().read(run / "out/run.json"), "run.json");
    const Json& tags = record.at("memory").at("by_tag");
    const MemoryPlan planned = plan(read(run, overrides));
    for (const MemoryTag tag : {MemoryTag::weights, MemoryTag::gradients, MemoryTag::optimizer,
                                MemoryTag::derived, MemoryTag::activations}) {
      const Json* use = tags.find(name_of(tag));
      const auto measured = use == nullptr ? 0 : use->at("peak").as_int();
      EXPECT_EQ(static_cast<std::int64_t>(planned.use.peak[static_cast<std::size_t>(tag)]), measured)
          << name_of(tag);
    }
    // The planned one has room for measuring the peak of products, which runs shorter than a second do not.
    EXPECT_LE(tags.at("workspace").at("peak").as_int(),
              static_cast<std::int64_t>(planned.use.peak[static_cast<std::size_t>(MemoryTag::workspace)]));
  }
}

TEST(MemoryPlan, TouchesNextToNothing) {
  const TinyRun run;
  write_wide_model(run, 16);
  const Parts parts = read(run, {"model_name_or_path=@/wide.json"});
  const auto before = process_use().resident;
  const MemoryPlan planned = plan(parts);
  EXPECT_GT(planned.peak(), std::size_t{16} << 30) << "a billion parameters, sixteen bytes each";
  EXPECT_LT(process_use().resident, before + (std::uint64_t{64} << 20));
}

TEST(MemoryPlan, ARunThatDoesNotFitEndsBeforeItStarts) {
  const TinyRun run;
  const Overrides small = {"per_device_train_batch_size=4", "memory_limit=40MiB"};
  const std::string error = run.error(small);
  EXPECT_NE(error.find("memory_limit allows 40"), std::string::npos) << error;
  EXPECT_FALSE(real_files().exists(run / "out/metrics.jsonl"));
  EXPECT_NO_THROW(run.train({"memory_limit=none"}));
}

TEST(MemoryPlan, TheFirstFixMakesItFit) {
  const TinyRun run;
  write_wide_model(run, 4);
  const Overrides wide = {"model_name_or_path=@/wide.json", "per_device_train_batch_size=16", "bf16=true"};
  const Parts parts = read(run, wide);
  const std::size_t peak = plan(parts).peak();
  const auto fixes = find_memory_fixes(real_files(), parts.recipe, parts.model,
                                       parts.recipe.model_name_or_path, parts.data, peak - 1);
  ASSERT_FALSE(fixes.empty());
  EXPECT_LT(fixes.front().peak, peak);
  Overrides changed = wide;
  changed.insert(changed.end(), fixes.front().changes.begin(), fixes.front().changes.end());
  EXPECT_EQ(plan(read(run, changed)).peak(), fixes.front().peak);
}

TEST(MemoryPlan, AnEvaluationThatDoesNotFitIsCutSmaller) {
  const TinyRun run;
  write_wide_model(run, 1);
  const Overrides evaluated = {"model_name_or_path=@/wide.json", "eval_dataset=@/text.txt",
                               "eval_strategy=epoch", "optim=adamw_8bit", "per_device_eval_batch_size=100"};
  const Parts parts = read(run, evaluated);
  const MemoryPlan planned = plan(parts);
  ASSERT_GT(planned.phases.evaluation, planned.phases.step);
  const auto fixes = find_memory_fixes(real_files(), parts.recipe, parts.model,
                                       parts.recipe.model_name_or_path, parts.data, planned.peak() - 1);
  ASSERT_FALSE(fixes.empty());
  EXPECT_EQ(fixes.front().changes, Overrides{"per_device_eval_batch_size=1"});
  EXPECT_EQ(fixes.front().slow_down, 1);
}

TEST(MemoryPlan, SamplesThatDoNotFitAreCutShorter) {
  const TinyRun run;
  write_wide_model(run, 1);
  std::string config = real_files().read(run / "wide.json");
  config.replace(config.find("\"max_position_embeddings\": 64"), 29, "\"max_position_embeddings\": 400000");
  write_file_atomically(real_files(), run / "wide.json", config);
  const Parts parts =
      read(run, {"model_name_or_path=@/wide.json", "eval_dataset=@/text.txt", "eval_strategy=epoch",
                 "generate_prompts=[we]", "generate_max_new_tokens=300000", "optim=adamw_8bit"});
  const MemoryPlan planned = plan(parts);
  ASSERT_GT(planned.phases.samples, planned.phases.step);
  const auto fixes = find_memory_fixes(real_files(), parts.recipe, parts.model,
                                       parts.recipe.model_name_or_path, parts.data, planned.peak() - 1);
  ASSERT_FALSE(fixes.empty());
  EXPECT_EQ(fixes.front().changes, Overrides{"generate_max_new_tokens=64"});
}

TEST(MemoryPlan, Limits) {
  const std::uint64_t total = read_system().total_memory;
  EXPECT_EQ(memory_limit_bytes("6GiB"), std::size_t{6} << 30);
  EXPECT_EQ(memory_limit_bytes("1.5MB"), 1500000u);
  EXPECT_EQ(memory_limit_bytes("none"), 0u);
  EXPECT_NEAR(static_cast<double>(memory_limit_bytes("50%")), static_cast<double>(total) / 2, 2.0);
  EXPECT_GT(memory_limit_bytes("auto"), 0u);
  for (const char* bad : {"6", "much", "-1GiB", "GiB", "6 GiB", "0%"}) {
    EXPECT_NE(error_of([&] {
                memory_limit_bytes(bad);
              }).find("expected a size (6GiB, 800MB), a share of this machine's memory (80%)"),
              std::string::npos)
        << bad;
  }
}

TEST(StepTime, MeasuresWithoutTheModel) {
  const TinyRun run;
  const Parts parts = read(run, {});
  const Step step = largest_step(parts.recipe, parts.data.train.get(), 300);
  const StepTime time =
      predict_step_time(real_files(), parts.recipe, parts.model, parts.recipe.model_name_or_path, step);
  EXPECT_GT(time.seconds, 0);
  double tokens = 0;
  for (const Segment& segment : step.micro_batches.front().segments().list())
    tokens += segment.padding ? 0 : segment.length;
  EXPECT_EQ(time.tokens, tokens * static_cast<double>(step.micro_batches.size()));
}

}  // namespace
}  // namespace lode
