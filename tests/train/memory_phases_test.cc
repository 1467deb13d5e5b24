// Loading, steps and saving: the plan of each against what a run took.
#include <gtest/gtest.h>

#include "io/weights.h"
#include "kernels/int8_matmul.h"
#include "models/hub.h"
#include "train/memory_plan.h"
#include "train/trainer_testing.h"

namespace lode {
namespace {

const Overrides kQuick = {"max_steps=2", "save_steps=1", "overwrite_output_dir=true", "eval_strategy=no"};

Overrides joined(Overrides first, const Overrides& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// A model with weights in files, for methods that tune one: @/base. Wide enough for blocks of formats.
Overrides tune_base(const TinyRun& run, const std::string& config) {
  const std::string folder = config + "-base";
  run.train({"model_name_or_path=@/" + config + ".json", "output_dir=@/" + folder, "max_steps=1",
             "overwrite_output_dir=true", "save_only_model=true"});
  return {"train_from_scratch=false", "model_name_or_path=" + newest_checkpoint(run / folder)};
}

struct Outcome {
  MemoryPlan plan;
  Json record;
  std::int64_t measured(const char* when, MemoryTag tag) const {
    const Json* use = record.at(when).at("by_tag").find(name_of(tag));
    return use == nullptr ? 0 : use->at("peak").as_int();
  }
};

Outcome run_and_plan(const TinyRun& run, const Overrides& overrides) {
  run.train(overrides);
  const Recipe recipe = run.recipe(overrides);
  const std::string path = resolve_model_path(real_files(), recipe.model_name_or_path);
  const ModelParts parts = read_recipe_parts(real_files(), recipe, path);
  Log log(false);
  const DataSets data = prepare_data_sets(real_files(), recipe, parts.tokenizer, 1, log);
  return {plan_memory(real_files(), recipe, parts, path, data),
          parse_json(real_files().read(join_path(recipe.output_dir, "run.json")), "run.json")};
}

constexpr MemoryTag kExact[] = {MemoryTag::weights, MemoryTag::gradients, MemoryTag::optimizer,
                                MemoryTag::derived, MemoryTag::activations};

void expect_as_planned(const Outcome& outcome) {
  const MemoryPhases& phases = outcome.plan.phases;
  EXPECT_EQ(phases.load_problem, "");
  for (const MemoryTag tag : kExact) {
    EXPECT_EQ(static_cast<std::int64_t>(outcome.plan.use.peak[static_cast<std::size_t>(tag)]),
              outcome.measured("memory", tag))
        << name_of(tag);
  }
  const auto load = outcome.record.at("memory_load").at("handed_peak").as_int();
  const auto steps = outcome.record.at("memory_steps").at("handed_peak").as_int();
  const std::int64_t mapped =
      outcome.record.at("recipe").at("train_from_scratch").as_bool() ? 0 : kLoadedAtOnce;
  EXPECT_EQ(static_cast<std::int64_t>(phases.load), load + mapped);
  // The plan has room for measuring the peak of products, which runs shorter than a second do not; saving
  // from memory takes two buffers that no tag counts.
  EXPECT_GE(static_cast<std::int64_t>(phases.step), steps);
  EXPECT_EQ(phases.save, phases.step + 2 * SafetensorsWriter::kHeld);
  EXPECT_EQ(outcome.plan.peak(), phases.largest() + outcome.plan.program + MemoryPlan::kRoom);
  EXPECT_GE(load, outcome.measured("memory_load", MemoryTag::weights));
}

TEST(MemoryPhases, OfTrainingFromScratch) {
  const TinyRun run;
  expect_as_planned(run_and_plan(run, kQuick));
  expect_as_planned(run_and_plan(run, joined(kQuick, {"pure_bf16=true", "bf16=null"})));
}

TEST(MemoryPhases, OfTuning) {
  const TinyRun run;
  for (const char* config : {"llama", "gpt2"}) {
    const Overrides base = joined(kQuick, tune_base(run, config));
    const Overrides lora = joined(base, {"finetuning_type=lora", "lora_rank=2", "lora_target=all"});
    for (const Overrides& variant :
         {base, lora, joined(lora, {"quantization_bit=8"}), joined(lora, {"quantization_bit=8", "bf16=true"}),
          joined(lora, {"add_tokens=<new>", "resize_vocab=true"})}) {
      SCOPED_TRACE(format("{} {}", config, variant.back()));
      expect_as_planned(run_and_plan(run, variant));
    }
  }
}

// Its copies of the weights are planned with the rest.
TEST(MemoryPhases, OfInt8FrozenProducts) {
  if (!int8_matmul_path().native) GTEST_SKIP() << "not run: " << int8_matmul_path().why;
  const TinyRun run;
  const Overrides base = joined(kQuick, tune_base(run, "llama"));
  const Overrides freeze = {"finetuning_type=freeze", "freeze_trainable_layers=1"};
  const Outcome plain = run_and_plan(run, joined(base, freeze));
  const Outcome beside = run_and_plan(run, joined(joined(base, freeze), {"frozen_compute=int8"}));
  expect_as_planned(beside);
  const auto derived = static_cast<std::size_t>(MemoryTag::derived);
  EXPECT_GT(beside.plan.use.peak[derived], plain.plan.use.peak[derived]);
  const Overrides lora = joined(base, {"finetuning_type=lora", "lora_rank=2", "lora_target=all"});
  expect_as_planned(run_and_plan(run, joined(lora, {"frozen_compute=int8"})));
}

// Batches of evaluations may be larger than those of steps, which keep more of each token.
TEST(MemoryPhases, OfEvaluations) {
  const TinyRun run;
  write_file_atomically(
      real_files(), run / "wide.json",
      R"({"model_type": "llama", "vocab_size": 300, "hidden_size": 64, "intermediate_size": 8192,
          "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4,
          "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": true})");
  const Overrides wide = joined(kQuick, {"model_name_or_path=@/wide.json"});
  const Overrides evaluate = joined(wide, {"eval_dataset=@/text.txt", "eval_strategy=steps", "eval_steps=1"});
  const Outcome outcome = run_and_plan(run, joined(evaluate, {"per_device_eval_batch_size=100"}));
  const MemoryPhases& phases = outcome.plan.phases;
  EXPECT_GT(phases.evaluation, phases.step);
  EXPECT_EQ(static_cast<std::int64_t>(phases.evaluation),
            outcome.record.at("memory_steps").at("handed_peak").as_int());
  for (const MemoryTag tag : kExact) {
    EXPECT_EQ(static_cast<std::int64_t>(outcome.plan.use.peak[static_cast<std::size_t>(tag)]),
              outcome.measured("memory", tag))
        << name_of(tag);
  }
  EXPECT_LE(run_and_plan(run, joined(evaluate, {"per_device_eval_batch_size=1"})).plan.phases.evaluation,
            phases.step);
  EXPECT_EQ(run_and_plan(run, wide).plan.phases.evaluation, 0u);
  // Data that is not prepared fills the batch.
  const Recipe recipe = run.recipe(joined(evaluate, {"per_device_eval_batch_size=4"}));
  const std::optional<Batch> batch = largest_evaluation(recipe, {}, 300);
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->num_tokens(), 4 * recipe.cutoff_len);
}

// The keys and values of a long sample are more than a step of short rows.
TEST(MemoryPhases, OfSamples) {
  const TinyRun run;
  write_file_atomically(
      real_files(), run / "long.json",
      R"({"model_type": "llama", "vocab_size": 300, "hidden_size": 64, "intermediate_size": 64,
          "num_hidden_layers": 8, "num_attention_heads": 1, "num_key_value_heads": 1,
          "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "tie_word_embeddings": true})");
  const Overrides evaluate =
      joined(kQuick, {"model_name_or_path=@/long.json", "eval_dataset=@/text.txt", "eval_strategy=steps",
                      "eval_steps=1", "generate_max_new_tokens=2000"});
  const Outcome outcome = run_and_plan(run, joined(evaluate, {"generate_prompts=[\"\", the cat]"}));
  const MemoryPhases& phases = outcome.plan.phases;
  const std::int64_t cache = 2 * 8 * 2000 * 64 * 4;
  EXPECT_GT(phases.samples, static_cast<std::size_t>(cache));
  // By how much a block is rounded depends on what was free.
  EXPECT_NEAR(static_cast<double>(phases.samples),
              outcome.record.at("memory_steps").at("handed_peak").as_double(), 64e3);
  const auto activations = static_cast<std::size_t>(MemoryTag::activations);
  EXPECT_EQ(static_cast<std::int64_t>(outcome.plan.use.peak[activations]),
            outcome.measured("memory_steps", MemoryTag::activations));
  EXPECT_EQ(run_and_plan(run, evaluate).plan.phases.samples, 0u);
}

// What a save reads back from the file comes on top of a step.
TEST(MemoryPhases, OfStateInAFile) {
  const TinyRun run;
  const Outcome outcome = run_and_plan(run, joined(kQuick, {"optim_offload_dir=" + run.path()}));
  const MemoryPhases& phases = outcome.plan.phases;
  const std::size_t largest = std::size_t{300} * 32 * sizeof(float);  // of the embedding, each moment
  EXPECT_EQ(phases.save, phases.step + largest + 2 * SafetensorsWriter::kHeld);
  EXPECT_LE(outcome.record.at("memory_steps").at("handed_peak").as_int(),
            static_cast<std::int64_t>(phases.step + largest));
}

TEST(MemoryPhases, OfWeightsThatAreNotThere) {
  const TinyRun run;
  const Recipe recipe = run.recipe({"train_from_scratch=false"});
  const ModelParts parts = read_recipe_parts(real_files(), recipe, recipe.model_name_or_path);
  const MemoryPlan plan = plan_memory(real_files(), recipe, parts, recipe.model_name_or_path, {});
  EXPECT_NE(plan.phases.load_problem, "");
  EXPECT_GE(plan.phases.load, plan.use.peak[static_cast<std::size_t>(MemoryTag::weights)]);
  EXPECT_NE(plan.lines()[plan.rows().size()].find("room for the weights alone"), std::string::npos);
}

}  // namespace
}  // namespace lode
