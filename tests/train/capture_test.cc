// Captured execution in whole runs: what is replayed, and that it holds no more.
#include <gtest/gtest.h>

#include "train/trainer_testing.h"

namespace lode {
namespace {

Json record_of(const TinyRun& run, const std::string& output) {
  const std::string file = run / (output + "/run.json");
  return parse_json(real_files().read(file), file);
}

std::int64_t count(const Json& record, const char* name) {
  return record.at("counters").at(format("graph: {}", name)).as_int();
}

TEST(Capture, EveryStepAfterTheFirstIsReplayedAndHoldsNoMore) {
  const TinyRun run;
  const Overrides base = {"max_steps=6", "packing=true", "packing_strategy=blocks", "eval_strategy=no"};
  for (const Overrides& keys : {Overrides{}, {"recompute=full"}, {"activation_policy=offload"}}) {
    Overrides both = base;
    both.insert(both.end(), keys.begin(), keys.end());
    both.push_back("overwrite_output_dir=true");
    Overrides captured = both;
    both.push_back("output_dir=@/dynamic");
    captured.insert(captured.end(), {"graph=captured", "output_dir=@/captured"});
    run.train(both);
    run.train(captured);
    EXPECT_TRUE(trace_of(run / "captured") == trace_of(run / "dynamic"));
    const Json ours = record_of(run, "captured"), theirs = record_of(run, "dynamic");
    EXPECT_EQ(count(ours, "micro-steps captured"), 1);
    EXPECT_EQ(count(ours, "replayed") + count(ours, "captured again"), 5);
    EXPECT_GE(count(ours, "replayed"), 4);  // the end of a write in the background may differ once
    EXPECT_EQ(count(ours, "stayed dynamic"), 0);
    EXPECT_EQ(ours.at("memory").at("by_tag").at("activations").at("peak").as_int(),
              theirs.at("memory").at("by_tag").at("activations").at("peak").as_int());
    EXPECT_LE(ours.at("memory").at("total").at("peak").as_int(),
              theirs.at("memory").at("total").at("peak").as_int());
  }
  EXPECT_NE(run.log("captured").find("graph: captured a micro-step of 128 tokens: "), std::string::npos);
}

TEST(Capture, MicroStepsOfSeveralSizesHavePlansOfTheirOwn) {
  const TinyRun run;
  const Overrides base = {"max_steps=12", "packing=false", "per_device_train_batch_size=24",
                          "eval_strategy=no"};
  Overrides dynamic = base, captured = base;
  dynamic.push_back("output_dir=@/dynamic");
  captured.insert(captured.end(), {"graph=captured", "output_dir=@/captured"});
  run.train(dynamic);
  run.train(captured);
  EXPECT_TRUE(trace_of(run / "captured") == trace_of(run / "dynamic"));
  const Json record = record_of(run, "captured");
  EXPECT_GT(count(record, "micro-steps captured"), 1);
  EXPECT_GT(count(record, "replayed"), 0);
  EXPECT_EQ(
      count(record, "micro-steps captured") + count(record, "captured again") + count(record, "replayed"),
      12);
}

// GaLore looks for its subspace every second step within the backward.
TEST(Capture, WhatTakesAnotherPathIsCapturedAgain) {
  const TinyRun run;
  const Overrides base = {
      "max_steps=6",      "use_galore=true",        "galore_rank=4",  "galore_update_interval=2",
      "eval_strategy=no", "optim_in_backward=true", "max_grad_norm=0"};
  Overrides dynamic = base, captured = base;
  dynamic.push_back("output_dir=@/dynamic");
  captured.insert(captured.end(), {"graph=captured", "output_dir=@/captured"});
  run.train(dynamic);
  run.train(captured);
  EXPECT_TRUE(trace_of(run / "captured") == trace_of(run / "dynamic"));
}

}  // namespace
}  // namespace lode
