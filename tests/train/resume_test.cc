// A resumed run is the unbroken run, bit for bit.
#include <gtest/gtest.h>
#include <signal.h>

#include "train/trainer_testing.h"

namespace lode {
namespace {

// Everything that has a state: accumulation, a window of logging that meets no save, evaluation, samples,
// warm-up.
const Overrides kBusy = {"max_steps=14",
                         "gradient_accumulation_steps=2",
                         "per_device_train_batch_size=2",
                         "logging_steps=4",
                         "lr_scheduler_type=cosine",
                         "warmup_steps=5",
                         "eval_strategy=steps",
                         "eval_steps=3",
                         "val_size=12",
                         "save_steps=1",
                         "weight_decay=0.1",
                         "generate_prompts=[the cat]",
                         "generate_max_new_tokens=5"};

Overrides with(Overrides base, const Overrides& more) {
  base.insert(base.end(), more.begin(), more.end());
  return base;
}

void expect_equal(const RunTrace& now, const RunTrace& unbroken, const std::string& where) {
  EXPECT_EQ(now.metrics, unbroken.metrics) << where;
  EXPECT_EQ(now.tensors, unbroken.tensors) << where;
  EXPECT_EQ(now.state, unbroken.state) << where;
}

struct Form {
  std::string name;
  Overrides overrides;
  int stride = 1;
};

class ResumeAnywhere : public testing::TestWithParam<Form> {};

TEST_P(ResumeAnywhere, EqualsTheUnbrokenRun) {
  const TinyRun run;
  const Overrides recipe = with(kBusy, GetParam().overrides);
  run.train(recipe);
  const RunTrace unbroken = trace_of(run / "out");
  ASSERT_FALSE(unbroken.metrics.empty());
  for (int step = 1; step < 14; step += GetParam().stride) {
    const std::string from = run / format("out/checkpoint-{}", step);
    run.train(with(recipe, {"resume_from_checkpoint=" + from}));
    expect_equal(trace_of(run / "out"), unbroken, format("resumed at step {}", step));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Train, ResumeAnywhere,
    testing::Values(Form{"f32", {}}, Form{"bf16", {"bf16=true"}},
                    Form{"threads", {"num_threads=2"}, 4},  // slow where the cores are busy
                    Form{"dropout", {"model_name_or_path=@/gpt2.json"}},
                    Form{"blocks", {"packing_strategy=blocks"}}, Form{"unpacked", {"packing=false"}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Optimizers, ResumeAnywhere,
    testing::Values(
        Form{"adamw_8bit", {"optim=adamw_8bit", "optim_args='min_8bit_size=1'"}, 4},
        Form{"lion_8bit", {"optim=lion_8bit", "optim_args='min_8bit_size=1'"}, 4},
        Form{"pure_bf16", {"pure_bf16=true", "bf16=auto"}, 3},
        Form{"pure_bf16_kahan", {"pure_bf16=true", "bf16=auto", "pure_bf16_rounding=kahan"}, 3},
        Form{"fp16", {"fp16=true", "bf16=auto", "fp16_initial_scale=4194304", "fp16_growth_interval=3"}, 3},
        Form{"offloaded", {"optim_offload_dir=@", "optim=adamw_8bit", "optim_args='min_8bit_size=1'"}, 3},
        Form{"in_backward",
             {"optim_in_backward=true", "max_grad_norm=0", "gradient_accumulation_steps=1",
              "per_device_train_batch_size=4"},
             3},
        Form{"adafactor", {"optim=adafactor", "optim_args='beta1=0.9,scale_parameter=true'"}, 4},
        Form{"muon", {"use_muon=true", "bf16=true"}, 4},
        Form{"galore", {"use_galore=true", "galore_rank=2", "galore_update_interval=3"}, 4},
        Form{"apollo", {"use_apollo=true", "apollo_rank=2", "apollo_update_interval=3"}, 4},
        Form{"badam", {"use_badam=true", "badam_switch_mode=random", "badam_switch_interval=2"}, 1}),
    [](const auto& info) { return info.param.name; });

TEST(Resume, AStreamGoesOnWhereItStopped) {
  const TinyRun run;
  const Overrides recipe =
      with(kBusy, {"streaming=true", "packing_strategy=blocks", "val_size=0", "eval_dataset=@/eval.txt",
                   "max_samples=40", "dataset=[@/text.txt, @/eval.txt]"});
  run.train(recipe);
  const RunTrace unbroken = trace_of(run / "out");
  EXPECT_GE(parse_json(unbroken.state, "state").at("epoch").as_double(), 1) << "the data was begun again";
  EXPECT_NE(run.log().find("streaming 2 files"), std::string::npos);
  for (int step = 1; step < 14; ++step) {
    run.train(with(recipe, {"resume_from_checkpoint=" + run / format("out/checkpoint-{}", step)}));
    expect_equal(trace_of(run / "out"), unbroken, format("resumed at step {}", step));
  }
  EXPECT_NE(run.error(with(recipe, {"max_steps=20", "streaming=false", "resume_from_checkpoint=true"}))
                .find("training data's fingerprint"),
            std::string::npos);
}

TEST(Resume, TheOrderOfTheDataIsPartOfTheRun) {
  const TinyRun run;
  const Overrides recipe =
      with(kBusy, {"disable_shuffling=true", "val_size=0", "eval_strategy=no", "generate_prompts=[]"});
  run.train(recipe);
  const RunTrace unbroken = trace_of(run / "out");
  const std::string from = "resume_from_checkpoint=" + run / "out/checkpoint-3";
  EXPECT_NE(run.error(with(recipe, {"disable_shuffling=false", from})).find(" in order"), std::string::npos);
  run.train(with(recipe, {"data_seed=77", "output_dir=@/other"}));
  EXPECT_EQ(trace_of(run / "other").metrics, unbroken.metrics) << "no seed orders the data";
}

TEST(Resume, SavingChangesNothing) {
  const TinyRun run;
  run.train(with(kBusy, {}));
  RunTrace often = trace_of(run / "out");
  run.train(with(kBusy, {"save_steps=1000", "output_dir=@/rarely"}));
  expect_equal(trace_of(run / "rarely"), often, "one save at the end");
  run.train(with(kBusy, {"save_strategy=no", "output_dir=@/never"}));
  expect_equal(trace_of(run / "never"), often, "save_strategy no");
  EXPECT_EQ(list_checkpoints(real_files(), run / "never").size(), 1u) << "the final model is always saved";
}

TEST(Resume, ContinuesTheSearchForTheBest) {
  const TinyRun run;
  const Overrides recipe = {"max_steps=12",      "eval_strategy=steps",     "eval_steps=2",
                            "save_steps=2",      "eval_dataset=@/eval.txt", "load_best_model_at_end=true",
                            "learning_rate=0.05"};
  const std::string best = run.train(recipe).result;
  const RunTrace unbroken = trace_of(run / "out");
  for (int step = 2; step < 12; step += 2) {
    const auto outcome =
        run.train(with(recipe, {"resume_from_checkpoint=" + run / format("out/checkpoint-{}", step)}));
    EXPECT_EQ(outcome.result, best);
    expect_equal(trace_of(run / "out"), unbroken, format("resumed at step {}", step));
  }
}

TEST(Resume, CountsEvaluationsWithoutImprovement) {
  const TinyRun run;
  // Nothing is learned, so only the first evaluation is an improvement.
  const Overrides recipe = {"learning_rate=0", "eval_strategy=steps", "eval_steps=2",
                            "save_steps=1",    "val_size=12",         "early_stopping_patience=3"};
  const auto outcome = run.train(recipe);
  EXPECT_EQ(outcome.step, 8);
  const RunTrace unbroken = trace_of(run / "out");
  for (const int step : {1, 3, 4, 6, 7}) {
    run.train(with(recipe, {"resume_from_checkpoint=" + run / format("out/checkpoint-{}", step)}));
    expect_equal(trace_of(run / "out"), unbroken, format("resumed at step {}", step));
  }
  const auto again = run.train(with(recipe, {"resume_from_checkpoint=true"}));
  EXPECT_TRUE(again.already_finished) << "early stopping is an end too";
  EXPECT_NE(run.log().find("or early_stopping_patience"), std::string::npos);
}

TEST(Resume, AnotherSplitIntoMicroBatchesIsTheSameRun) {
  const TinyRun run;
  const Overrides recipe = {"max_steps=10", "save_steps=5", "per_device_train_batch_size=4"};
  run.train(recipe);
  const auto unbroken = numbers_of(run / "out/checkpoint-10/model.safetensors");
  for (const auto& [rows, batches] : {std::pair{2, 2}, {1, 4}}) {
    run.train({"max_steps=10", format("per_device_train_batch_size={}", rows),
               format("gradient_accumulation_steps={}", batches),
               "resume_from_checkpoint=" + run / "out/checkpoint-5"});
    EXPECT_LT(largest_difference(numbers_of(run / "out/checkpoint-10/model.safetensors"), unbroken), 1e-5);
  }
}

TEST(Resume, RefusesWhatWouldBeAnotherRun) {
  const TinyRun run;
  run.train({"max_steps=4", "save_steps=2"});
  const RunTrace before = trace_of(run / "out");
  const auto refusal = [&](const std::string& change) {
    const std::string error = run.error({"max_steps=8", "resume_from_checkpoint=true", change});
    EXPECT_NE(error.find("cannot go on from this checkpoint"), std::string::npos) << change << ": " << error;
    return error;
  };
  EXPECT_NE(refusal("per_device_train_batch_size=8").find("global batch (rows a step) was 4, is 8"),
            std::string::npos);
  EXPECT_NE(refusal("seed=7").find("seed was 42, is 7"), std::string::npos);
  EXPECT_NE(refusal("bf16=true").find("bf16 was false, is true"), std::string::npos);
  EXPECT_NE(refusal("dataset=@/eval.txt").find("training data's fingerprint"), std::string::npos);
  EXPECT_NE(refusal("val_size=10").find("training data's fingerprint"), std::string::npos);
  EXPECT_NE(refusal("packing_strategy=blocks").find("training data's fingerprint"), std::string::npos);
  // Another tokenizer.
  const auto other = Tokenizer::load(real_files(), run / "tok");
  std::string text = real_files().read(run / "tok/tokenizer.json");
  const auto at = text.find("<|endoftext|>");
  for (auto i = at; i != std::string::npos; i = text.find("<|endoftext|>", i))
    text.replace(i, 13, "<|endoftexx|>");
  real_files().make_directory(run / "tok2");
  write_file_atomically(real_files(), run / "tok2/tokenizer.json", text);
  EXPECT_NE(refusal("tokenizer_name_or_path=@/tok2").find("tokenizer's fingerprint"), std::string::npos);
  // Another model.
  const std::string error =
      run.error({"max_steps=8", "resume_from_checkpoint=true", "model_name_or_path=@/gpt2.json"});
  EXPECT_NE(error.find("checkpoint-4"), std::string::npos) << error;
  EXPECT_EQ(trace_of(run / "out"), before) << "a refusal loses nothing";
}

TEST(Resume, AFinishedRunSaysSoAndCanGoOn) {
  const TinyRun run;
  run.train({"max_steps=4", "lr_scheduler_type=constant"});
  const RunTrace before = trace_of(run / "out");
  const auto outcome =
      run.train({"max_steps=4", "lr_scheduler_type=constant", "resume_from_checkpoint=true"});
  EXPECT_TRUE(outcome.already_finished);
  EXPECT_EQ(outcome.result, run / "out/checkpoint-4");
  EXPECT_EQ(trace_of(run / "out"), before);
  EXPECT_NE(run.log().find("this run is finished"), std::string::npos);
  EXPECT_NE(run.log().find("raise num_train_epochs or max_steps"), std::string::npos);
  run.train({"max_steps=6", "lr_scheduler_type=constant", "resume_from_checkpoint=true"});
  const RunTrace longer = trace_of(run / "out");
  EXPECT_NE(run.log().find("changed since the checkpoint: max_steps was 4, is 6"), std::string::npos);
  run.train({"max_steps=6", "lr_scheduler_type=constant", "output_dir=@/whole"});
  EXPECT_EQ(longer.tensors, trace_of(run / "whole").tensors);
  EXPECT_EQ(longer.metrics, trace_of(run / "whole").metrics);
}

TEST(Resume, WithoutACheckpointTheRunBegins) {
  const TinyRun run;
  run.train({"max_steps=3", "resume_from_checkpoint=true"});
  EXPECT_NE(run.log().find("no checkpoint to resume from"), std::string::npos);
  EXPECT_EQ(metrics_of(run / "out").size(), 3u);
}

TEST(Resume, OnlyWeightsAreNoRunToGoOnWith) {
  const TinyRun run;
  run.train({"max_steps=3", "save_only_model=true"});
  EXPECT_FALSE(real_files().exists(run / "out/checkpoint-3/optimizer.safetensors"));
  EXPECT_NE(run.error({"max_steps=5", "resume_from_checkpoint=true"}).find("save_only_model"),
            std::string::npos);
}

TEST(Resume, ADamagedNewestCheckpointIsPassedOver) {
  const TinyRun run;
  run.train({"max_steps=9", "save_steps=3"});
  const RunTrace unbroken = trace_of(run / "out");
  // A flipped bit in one, a file missing from the other.
  const std::string weights = run / "out/checkpoint-9/model.safetensors";
  std::string bytes = real_files().read(weights);
  bytes[bytes.size() - 100] = static_cast<char>(bytes[bytes.size() - 100] ^ 1);
  write_file_atomically(real_files(), weights, bytes);
  real_files().remove(run / "out/checkpoint-6/optimizer.safetensors");
  run.train({"max_steps=9", "save_steps=3", "resume_from_checkpoint=true"});
  EXPECT_NE(run.log().find("checkpoint-9: damaged, passed over"), std::string::npos) << run.log();
  EXPECT_NE(run.log().find("checkpoint-6: damaged, passed over"), std::string::npos);
  EXPECT_NE(run.log().find("resuming from " + run / "out/checkpoint-3"), std::string::npos);
  expect_equal(trace_of(run / "out"), unbroken, "after the fall back");
  EXPECT_TRUE(verify_checkpoint(real_files(), run / "out/checkpoint-6").sound());
  // Named by the user, a damaged one is an error.
  real_files().remove(run / "out/checkpoint-6/optimizer.safetensors");
  EXPECT_NE(run.error({"resume_from_checkpoint=" + run / "out/checkpoint-6"}).find("cannot be resumed from"),
            std::string::npos);
}

}  // namespace
}  // namespace lode
