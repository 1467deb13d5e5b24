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

Overrides with(Overrides first, const Overrides& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

// Both ways give the same bits; into dynamic/ and captured/.
void train_both(const TinyRun& run, const Overrides& keys) {
  const Overrides base = with(keys, {"eval_strategy=no", "overwrite_output_dir=true"});
  run.train(with(base, {"output_dir=@/dynamic"}));
  run.train(with(base, {"graph=captured", "output_dir=@/captured"}));
  EXPECT_TRUE(trace_of(run / "captured") == trace_of(run / "dynamic"));
}

TEST(Capture, EveryStepAfterTheFirstIsReplayedAndHoldsNoMore) {
  const TinyRun run;
  for (const char* policy : {"keep", "recompute", "offload"}) {
    SCOPED_TRACE(policy);
    train_both(run, {"max_steps=6", "packing=true", "packing_strategy=blocks",
                     format("activation_policy={}", policy)});
    const Json ours = record_of(run, "captured"), theirs = record_of(run, "dynamic");
    EXPECT_EQ(count(ours, "micro-steps captured"), 1);
    EXPECT_EQ(count(ours, "replayed") + count(ours, "captured again"), 5);
    // The end of a write in the background may differ once.
    EXPECT_LE(count(ours, "captured again"), std::string_view(policy) == "offload" ? 1 : 0);
    EXPECT_EQ(count(ours, "stayed dynamic"), 0);
    EXPECT_EQ(ours.at("memory").at("by_tag").at("activations").at("peak").as_int(),
              theirs.at("memory").at("by_tag").at("activations").at("peak").as_int());
    EXPECT_LE(ours.at("memory_steps").at("handed_peak").as_int(),
              theirs.at("memory_steps").at("handed_peak").as_int());
  }
  EXPECT_NE(run.log("captured").find("graph: captured a micro-step of 128 tokens: "), std::string::npos);
}

TEST(Capture, MicroStepsOfSeveralSizesHavePlansOfTheirOwn) {
  const TinyRun run;
  train_both(run, {"max_steps=12", "packing=false", "per_device_train_batch_size=24"});
  const Json record = record_of(run, "captured");
  EXPECT_GT(count(record, "micro-steps captured"), 1);
  EXPECT_GT(count(record, "replayed"), 0);
  EXPECT_EQ(
      count(record, "micro-steps captured") + count(record, "captured again") + count(record, "replayed"),
      12);
}

// The head works for tokens with a target alone: of micro-steps with as many tokens some need more for them.
TEST(Capture, WhatNeedsMoreIsCapturedAgain) {
  const TinyRun run;
  train_both(run, {"max_steps=40", "packing=false", "per_device_train_batch_size=12"});
  EXPECT_GT(count(record_of(run, "captured"), "captured again"), 0);
  EXPECT_NE(run.log("captured").find("tokens again: block "), std::string::npos);
}

}  // namespace
}  // namespace lode
