#include "observe/trainer_state.h"

#include "gtest/gtest.h"
#include "observe/metrics.h"

namespace lode {
namespace {

TrainerState small_state() {
  TrainerState state;
  state.step = 20;
  state.max_steps = 40;
  state.epoch = 0.5;
  state.num_train_epochs = 1;
  state.logging_steps = 10;
  state.eval_steps = 20;
  state.save_steps = 20;
  state.train_batch_size = 8;
  state.tokens_seen = 12345;
  state.total_flops = 1.5e12;
  state.main_eval_set = "val";
  StepMetrics step{.step = 10, .epoch = 0.25, .loss = 3.5, .learning_rate = 1e-3};
  step.tokens_per_second = 100;
  state.metrics = {to_json(step), to_json(EvalMetrics{.step = 20, .epoch = 0.5, .set = "val", .loss = 2.5}),
                   to_json(EvalMetrics{.step = 20, .epoch = 0.5, .set = "code", .loss = 2.75}),
                   to_json(SampleText{20, "a", "b"}), to_json(StepMetrics{.step = 30, .loss = 1})};
  return state;
}

TEST(TrainerState, ExactText) {
  TrainerState state = small_state();
  state.best_metric = 2.5;
  state.best_step = 20;
  state.best_checkpoint = "out/checkpoint-20";
  EXPECT_EQ(make_trainer_state(state), R"({
  "best_global_step": 20,
  "best_metric": 2.5,
  "best_model_checkpoint": "out/checkpoint-20",
  "epoch": 0.5,
  "eval_steps": 20,
  "global_step": 20,
  "is_hyper_param_search": false,
  "is_local_process_zero": true,
  "is_world_process_zero": true,
  "log_history": [
    {
      "epoch": 0.25,
      "grad_norm": null,
      "learning_rate": 0.001,
      "loss": 3.5,
      "step": 10
    },
    {
      "epoch": 0.5,
      "eval_loss": 2.5,
      "step": 20
    },
    {
      "epoch": 0.5,
      "eval_code_loss": 2.75,
      "step": 20
    }
  ],
  "logging_steps": 10,
  "max_steps": 40,
  "num_input_tokens_seen": 12345,
  "num_train_epochs": 1,
  "save_steps": 20,
  "stateful_callbacks": {
    "TrainerControl": {
      "args": {
        "should_epoch_stop": false,
        "should_evaluate": false,
        "should_log": false,
        "should_save": true,
        "should_training_stop": false
      },
      "attributes": {}
    }
  },
  "total_flos": 1.5e+12,
  "train_batch_size": 8,
  "trial_name": null,
  "trial_params": null
}
)");
}

TEST(TrainerState, NothingYet) {
  const Json state = parse_json(make_trainer_state({}), "state");
  EXPECT_EQ(state.at("log_history").size(), 0U);
  EXPECT_TRUE(state.at("best_metric").is_null());
  EXPECT_TRUE(state.at("best_global_step").is_null());
  EXPECT_TRUE(state.at("best_model_checkpoint").is_null());
}

TEST(TrainerState, FractionalEpochsStay) {
  TrainerState state;
  state.num_train_epochs = 0.5;
  EXPECT_EQ(parse_json(make_trainer_state(state), "state").at("num_train_epochs").as_double(), 0.5);
}

}  // namespace
}  // namespace lode
