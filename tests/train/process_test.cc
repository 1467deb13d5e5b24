// Runs that are killed, stopped and started again, in processes of their own.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "core/rng.h"
#include "train/trainer_testing.h"

namespace lode {
namespace {

const Overrides kLong = {"max_steps=1500",
                         "save_steps=25",
                         "logging_steps=7",
                         "eval_strategy=steps",
                         "eval_steps=25",
                         "val_size=8",
                         "warmup_ratio=0.1",
                         "per_device_train_batch_size=2",
                         "save_total_limit=3",
                         "load_best_model_at_end=true",
                         "resume_from_checkpoint=true"};

TEST(Killed, TenTimesAtRandomMomentsEqualsUnbroken) {
  if (!lode_binary_is_built()) return;
  const TinyRun run;
  Overrides whole = kLong;
  whole.push_back("output_dir=@/whole");
  run.train(whole);
  const RunTrace unbroken = trace_of(run / "whole");

  constexpr int kKills = 10;
  Rng rng(20, "kills");
  int killed = 0;
  for (int i = 0; i < kKills; ++i) {
    LodeProcess process(run, kLong);
    const auto target = static_cast<std::int64_t>(100 * i + 10 + rng.below(90));
    // Every third one dies while it starts.
    if (i % 3 != 1) wait_for_step(process, run / "out", target);
    ::usleep(static_cast<useconds_t>(rng.below(i % 3 == 1 ? 150'000 : 20'000)));
    process.kill(SIGKILL);
    killed += process.wait() == -SIGKILL ? 1 : 0;
  }
  EXPECT_EQ(killed, kKills);
  LodeProcess last(run, kLong);
  ASSERT_EQ(last.wait(), 0) << last.output();
  const RunTrace now = trace_of(run / "out");
  EXPECT_EQ(now.metrics, unbroken.metrics);
  EXPECT_EQ(now.tensors, unbroken.tensors);
  EXPECT_EQ(now.state, unbroken.state);
  for (const std::string& name : real_files().list(run / "out")) {
    EXPECT_FALSE(name.starts_with(".tmp-")) << name << " was left";
  }
}

TEST(Stopped, BySigtermSavesAndGoesOn) {
  if (!lode_binary_is_built()) return;
  const TinyRun run;
  Overrides whole = kLong;
  whole.push_back("output_dir=@/whole");
  run.train(whole);
  for (const int signal : {SIGTERM, SIGINT}) {
    LodeProcess process(run, kLong);
    ASSERT_TRUE(wait_for_step(process, run / "out", signal == SIGTERM ? 200 : 700)) << process.output();
    process.kill(signal);
    EXPECT_EQ(process.wait(), exit_code(ErrorKind::preempted)) << process.output();
    EXPECT_NE(process.output().find(signal == SIGTERM ? "SIGTERM received" : "SIGINT received"),
              std::string::npos);
    EXPECT_NE(process.output().find("run again with resume_from_checkpoint"), std::string::npos);
    // What was logged up to the stop is in the checkpoint: nothing has to be done again.
    const auto step = list_checkpoints(real_files(), run / "out").back().step;
    EXPECT_LE(metrics_of(run / "out").back().at("step").as_int(), step);
    const Json record = parse_json(real_files().read(run / "out/run.json"), "run.json");
    EXPECT_EQ(record.at("exit_status").as_int(), 75);
  }
  LodeProcess last(run, kLong);
  ASSERT_EQ(last.wait(), 0) << last.output();
  EXPECT_EQ(trace_of(run / "out"), trace_of(run / "whole"));
}

TEST(Stopped, BySecondSignalAtOnce) {
  if (!lode_binary_is_built()) return;
  const TinyRun run;
  // One step of all rows, many times over.
  std::string text;
  for (int i = 0; i < 40'000; ++i) text += "the cat sat on a mat and saw that big dog\n";
  write_file_atomically(real_files(), run / "long.txt", text);
  LodeProcess process(run,
                      {"max_steps=10", "per_device_train_batch_size=1", "gradient_accumulation_steps=100000",
                       "dataset=@/long.txt", "packing_strategy=blocks"});
  while (process.running() && !real_files().exists(run / "out/run.json")) ::usleep(2000);
  ::usleep(100'000);
  // Again and again: two signals that are pending together are one.
  while (process.running()) {
    process.kill(SIGTERM);
    ::usleep(50'000);
  }
  EXPECT_EQ(process.wait(), -SIGTERM) << process.output();
  EXPECT_TRUE(list_checkpoints(real_files(), run / "out").empty());
}

TEST(Folder, OfARunningRunIsRefused) {
  if (!lode_binary_is_built()) return;
  const TinyRun run;
  LodeProcess first(run, {"max_steps=100000"});
  ASSERT_TRUE(wait_for_step(first, run / "out", 1)) << first.output();
  const std::string error = run.error({"overwrite_output_dir=true"});
  EXPECT_NE(error.find(format("process {} is using this folder", first.id())), std::string::npos) << error;
  EXPECT_EQ(kind_of([&] { run.train({"resume_from_checkpoint=true"}); }), ErrorKind::usage);
  EXPECT_TRUE(first.running());
  EXPECT_TRUE(real_files().exists(run / "out/metrics.jsonl")) << "the refused run removed nothing";
}

TEST(FullDisk, EndsTheRunAndKeepsTheEarlierCheckpoint) {
  if (!lode_binary_is_built()) return;
  const TinyRun run;
  const Overrides recipe = {"max_steps=10", "save_steps=5", "lr_scheduler_type=constant"};
  run.train(recipe);
  const RunTrace before = trace_of(run / "out");
  const Overrides longer = {"max_steps=20", "save_steps=5", "lr_scheduler_type=constant",
                            "resume_from_checkpoint=true"};
  LodeProcess process(run, longer, 200'000);  // the optimizer's file is larger
  EXPECT_EQ(process.wait(), exit_code(ErrorKind::data)) << process.output();
  EXPECT_NE(process.output().find("optimizer.safetensors: cannot write"), std::string::npos)
      << process.output();
  EXPECT_EQ(newest_checkpoint(run / "out"), run / "out/checkpoint-10");
  EXPECT_EQ(trace_of(run / "out").tensors, before.tensors);
  EXPECT_TRUE(verify_checkpoint(real_files(), run / "out/checkpoint-10").sound());
  // With space again it goes on as if nothing had been.
  run.train(longer);
  run.train({"max_steps=20", "save_steps=5", "lr_scheduler_type=constant", "output_dir=@/whole"});
  EXPECT_EQ(trace_of(run / "out"), trace_of(run / "whole"));
}

}  // namespace
}  // namespace lode
