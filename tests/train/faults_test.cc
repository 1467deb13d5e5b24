// Losses that are not finite, and disks that fail.
#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>

#include "train/trainer_testing.h"

namespace lode {
namespace {

bool all_finite(const std::vector<float>& numbers) {
  for (const float x : numbers) {
    if (!std::isfinite(x)) return false;
  }
  return !numbers.empty();
}

View weights_of(Trainer& trainer, const std::string& name) {
  const Parameter* parameter = trainer.decoder().parameters().find(name);
  EXPECT_NE(parameter, nullptr) << name;
  return parameter->values();
}

TEST(BadSteps, EndTheRunWithGoodWeights) {
  const TinyRun run;
  // The first update makes weights of 1e30; every later product overflows.
  const Overrides recipe = {"learning_rate=1e30", "max_grad_norm=0", "lr_scheduler_type=constant",
                            "save_steps=1", "max_bad_steps=3"};
  EXPECT_EQ(kind_of([&] { run.train(recipe); }), ErrorKind::diverged);
  const auto records = metrics_of(run / "out");
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(records[0].at("skipped").as_int(), 0);
  EXPECT_EQ(records[3].at("skipped").as_int(), 3);
  EXPECT_TRUE(records[3].at("loss").is_null());
  EXPECT_EQ(records[3].at("tokens"), records[0].at("tokens")) << "skipped steps train on nothing";
  const std::string checkpoint = newest_checkpoint(run / "out");
  EXPECT_TRUE(verify_checkpoint(real_files(), checkpoint).sound());
  EXPECT_TRUE(all_finite(numbers_of(join_path(checkpoint, "model.safetensors"))));
  EXPECT_TRUE(all_finite(numbers_of(join_path(checkpoint, "optimizer.safetensors"))));
  EXPECT_EQ(numbers_of(join_path(checkpoint, "model.safetensors")),
            numbers_of(run / "out/checkpoint-1/model.safetensors"));
  const Json record = parse_json(real_files().read(run / "out/run.json"), "run.json");
  EXPECT_EQ(record.at("exit_status").as_int(), 5);
  EXPECT_NE(run.log().find("the update is skipped (1 in a row, 3 allowed)"), std::string::npos);
}

TEST(BadSteps, NameLayerOpAndSampleAndAreGotOver) {
  const TinyRun run;
  // One document reaches position 40 alone; what the model adds there overflows in the first norm.
  std::string text;
  for (int i = 0; i < 39; ++i)
    text += (i == 17 ? std::string(60, 'q') : std::string("the cat")) + (i < 38 ? "\n\n" : "");
  write_file_atomically(real_files(), run / "odd.txt", text);
  Log log(false);
  const Overrides recipe = {"dataset=@/odd.txt", "model_name_or_path=@/gpt2.json",
                            "cutoff_len=64",     "packing=false",
                            "max_steps=-1",      "num_train_epochs=2",
                            "learning_rate=1e-3"};
  Trainer trainer(real_files(), run.recipe(recipe), {}, log);
  const View positions = weights_of(trainer, "transformer.wpe.weight");
  for (std::int64_t c = 0; c < positions.cols; ++c) positions.row<float>(40)[c] = 3e38f;
  const auto outcome = trainer.run();
  EXPECT_EQ(outcome.step, 20);
  EXPECT_EQ(trainer.state().skipped, 2) << "once an epoch";
  EXPECT_EQ(trainer.state().updates, 18);
  const std::string said = run.log();
  const auto at = said.find("First bad tensor: ");
  ASSERT_NE(at, std::string::npos) << said;
  const std::string where = said.substr(at, said.find('\n', at) - at);
  EXPECT_NE(where.find("sample 17, position 40"), std::string::npos) << where;
  EXPECT_NE(where.find("layer"), std::string::npos) << where;
  const auto loss = metrics_of(run / "out").back().at("loss");
  ASSERT_FALSE(loss.is_null());
  EXPECT_LT(loss.as_double(), std::log(300.0));
  EXPECT_TRUE(all_finite(numbers_of(join_path(outcome.result, "model.safetensors"))));
}

TEST(BadSteps, OfWeightsThatWereBadBeforeNameThem) {
  const TinyRun run;
  Log log(false);
  Trainer trainer(real_files(), run.recipe({"max_bad_steps=1"}), {}, log);
  weights_of(trainer, "model.layers.1.mlp.down_proj.weight").row<float>(3)[2] = NAN;
  const std::string error = error_of([&] { trainer.run(); });
  EXPECT_NE(error.find("the weights of model.layers.1.mlp.down_proj.weight"), std::string::npos) << error;
}

// A disk that fails at some call of the run: what was saved stays good, and the run can go on from it.
TEST(FailingDisk, NeverCostsAFinishedCheckpoint) {
  const TinyRun run;
  const Overrides recipe = {"max_steps=8",  "save_steps=2", "eval_strategy=steps",
                            "eval_steps=4", "val_size=8",   "save_total_limit=2"};
  Overrides first = recipe;
  first.push_back("output_dir=@/whole");
  FailingFiles counting(real_files(), 1 << 30, ENOSPC);
  run.train(first, counting);
  const RunTrace unbroken = trace_of(run / "whole");
  ASSERT_GT(counting.calls(), 100);

  Overrides again = recipe;
  again.push_back("resume_from_checkpoint=true");
  int failed = 0;
  for (const bool persistent : {true, false}) {
    for (std::int64_t n = 1; n <= counting.calls(); n += persistent && n < 40 ? 1 : 19) {
      real_files().remove(run / "out");
      FailingFiles files(real_files(), n, persistent ? ENOSPC : EIO, persistent);
      try {
        run.train(again, files);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::data) << error.what();
        EXPECT_NE(std::string(error.what()).find("cannot"), std::string::npos) << error.what();
        ++failed;
      }
      for (const auto& checkpoint : list_checkpoints(real_files(), run / "out")) {
        EXPECT_TRUE(verify_checkpoint(real_files(), checkpoint.path).sound())
            << checkpoint.path << " after call " << n;
      }
      run.train(again);
      const RunTrace now = trace_of(run / "out");
      EXPECT_EQ(now.tensors, unbroken.tensors) << n;
      EXPECT_EQ(now.state, unbroken.state) << n;
    }
  }
  EXPECT_GT(failed, 10);
}

}  // namespace
}  // namespace lode
