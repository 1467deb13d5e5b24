// What a run computes and leaves: accumulation, evaluation, schedules, files.
#include "train/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numbers>

#include "io/weights.h"
#include "train/evaluate.h"
#include "train/trainer_testing.h"

namespace lode {
namespace {

std::vector<double> column(const std::vector<Json>& records, std::string_view key) {
  std::vector<double> values;
  for (const Json& record : records) {
    const Json* value = record.find(key);
    if (value != nullptr && !value->is_null()) values.push_back(value->as_double());
  }
  return values;
}

// From ln 300 = 5.7 on, forty steps with each optimizer at a rate that suits it.
TEST(Trainer, EveryOptimizerLearns) {
  const TinyRun run;
  const std::vector<Overrides> optimizers = {
      {"optim=adamw_8bit", "optim_args='min_8bit_size=1'"},
      {"optim=adafactor"},
      {"optim=lion_32bit", "learning_rate=1e-3"},
      {"optim=lion_8bit", "optim_args='min_8bit_size=1'", "learning_rate=1e-3"},
      {"pure_bf16=true", "bf16=auto"},
      {"pure_bf16=true", "bf16=auto", "pure_bf16_rounding=kahan"},
      {"optim=sgd", "optim_args='momentum=0.9,nesterov=true'", "learning_rate=0.3"},
      {"use_adam_mini=true"},
      {"use_muon=true"},
      {"use_galore=true", "galore_rank=4", "galore_scale=1", "galore_update_interval=10"},
      {"use_galore=true", "optim=adamw_8bit", "galore_rank=4", "galore_scale=1"},
      {"use_apollo=true", "apollo_rank=4", "apollo_scale=4"},
      {"optim=apollo_adamw"},
      {"use_badam=true", "badam_switch_interval=5", "learning_rate=0.05"},
  };
  for (const Overrides& optimizer : optimizers) {
    Overrides overrides = {"max_steps=40", "logging_steps=10", "overwrite_output_dir=true",
                           "save_strategy=no", "learning_rate=0.01"};
    overrides.insert(overrides.end(), optimizer.begin(), optimizer.end());
    run.train(overrides);
    const auto loss = column(metrics_of(run / "out"), "loss");
    // BAdam never trains embedding and head, which are random here.
    const bool layers_alone = optimizer[0] == "use_badam=true";
    EXPECT_LT(loss.back(), layers_alone ? loss.front() - 0.02 : 4.8) << optimizer[0];
  }
}

double peak_of(const std::string& output_dir, std::string_view tag) {
  const std::string path = join_path(output_dir, "run.json");
  return parse_json(real_files().read(path), path).at("memory").at("by_tag").at(tag).at("peak").as_double();
}

// Same losses, norms, weights and states, with gradients that live until their update alone.
TEST(Trainer, TheUpdateInBackwardIsTheOrdinaryOne) {
  const TinyRun run;
  const std::vector<Overrides> forms = {
      {},
      {"model_name_or_path=@/gpt2.json"},  // tied head, biases, learned positions
      {"use_muon=true", "bf16=true"},
      {"optim=adamw_8bit", "optim_args='min_8bit_size=1'", "pure_bf16=true", "bf16=auto"},
      {"use_badam=true", "badam_switch_interval=2"},
  };
  for (const Overrides& form : forms) {
    Overrides ordinary = {"max_steps=6", "max_grad_norm=0", "overwrite_output_dir=true", "weight_decay=0.1"};
    ordinary.insert(ordinary.end(), form.begin(), form.end());
    Overrides fused = ordinary;
    fused.insert(fused.end(), {"optim_in_backward=true", "output_dir=@/fused"});
    run.train(ordinary);
    run.train(fused);
    const std::string name = form.empty() ? "plain" : form[0];
    const auto one = metrics_of(run / "out"), other = metrics_of(run / "fused");
    ASSERT_EQ(column(one, "loss").size(), 6u) << name;
    EXPECT_EQ(column(one, "loss"), column(other, "loss")) << name;
    EXPECT_EQ(column(one, "grad_norm"), column(other, "grad_norm")) << name;
    EXPECT_EQ(trace_of(run / "out").tensors, trace_of(run / "fused").tensors) << name;
    EXPECT_LT(peak_of(run / "fused", "gradients"), peak_of(run / "out", "gradients") * 0.8) << name;
  }
}

// State in a file: the same run, also in the order of backward.
TEST(Trainer, StateInAFileIsTheSameState) {
  const TinyRun run;
  for (const bool fused : {false, true}) {
    Overrides common = {"max_steps=6", "overwrite_output_dir=true"};
    if (fused) common.insert(common.end(), {"max_grad_norm=0", "optim_in_backward=true"});
    Overrides offloaded = common;
    offloaded.insert(offloaded.end(), {"optim_offload_dir=@", "output_dir=@/offloaded"});
    run.train(common);
    run.train(offloaded);
    EXPECT_EQ(column(metrics_of(run / "out"), "loss"), column(metrics_of(run / "offloaded"), "loss"));
    EXPECT_EQ(trace_of(run / "out").tensors, trace_of(run / "offloaded").tensors) << fused;
  }
  EXPECT_NE(run.error({"optim_offload_dir=@/absent", "output_dir=@/other"}).find("absent"),
            std::string::npos);
}

TEST(Trainer, TheUpdateInBackwardStopsAtABadGradient) {
  const TinyRun run;
  const std::string message = run.error({"optim_in_backward=true", "max_grad_norm=0", "learning_rate=1e30",
                                         "lr_scheduler_type=constant", "max_bad_steps=2"});
  EXPECT_NE(message.find("2 steps in a row were not finite"), std::string::npos) << message;
}

// A scale that is a power of 2 changes no bit while everything is in range; above it steps are left out and
// counted, and the scale falls until they are not.
TEST(Trainer, LossScalingChangesNothingButSkippedSteps) {
  const TinyRun run;
  run.train({"max_steps=6"});
  run.train({"max_steps=6", "fp16=true", "bf16=auto", "fp16_initial_scale=1024", "output_dir=@/half"});
  EXPECT_EQ(column(metrics_of(run / "out"), "loss"), column(metrics_of(run / "half"), "loss"));
  EXPECT_EQ(column(metrics_of(run / "out"), "grad_norm"), column(metrics_of(run / "half"), "grad_norm"));
  EXPECT_EQ(trace_of(run / "out").tensors, trace_of(run / "half").tensors);
  run.train({"fp16=true", "bf16=auto", "fp16_initial_scale=16777216", "fp16_growth_interval=5",
             "output_dir=@/high"});
  const auto records = metrics_of(run / "high");
  const auto scale = column(records, "loss_scale"), skipped = column(records, "skipped");
  EXPECT_LT(scale.front(), 16777216);
  EXPECT_GE(skipped.back(), 1);
  EXPECT_LT(skipped.back(), 15);
  EXPECT_NE(std::ranges::adjacent_find(scale, std::less<>()), scale.end()) << "it grows again";
  EXPECT_LT(column(records, "loss").back(), 5.5);
  EXPECT_NE(run.error({"fp16=true", "bf16=auto", "strict=true", "output_dir=@/strict"}).find("fp16"),
            std::string::npos);
}

// Half the weights' memory, and what is saved is what is kept.
TEST(Trainer, PureBf16HasNoMasters) {
  const TinyRun run;
  run.train({"bf16=true", "max_steps=2"});
  run.train({"pure_bf16=true", "bf16=auto", "max_steps=2", "output_dir=@/pure"});
  EXPECT_LT(peak_of(run / "pure", "weights"), peak_of(run / "out", "weights") * 0.55);
  const WeightSet weights(real_files(), newest_checkpoint(run / "pure") + "/model.safetensors");
  for (const auto& [name, entry] : weights.tensors()) {
    EXPECT_EQ(entry.info->dtype, name.find("norm") != std::string::npos ? "F32" : "BF16") << name;
  }
  EXPECT_NE(run.error({"bf16=true", "output_dir=@/pure", "resume_from_checkpoint=true"}).find("pure_bf16"),
            std::string::npos);
}

TEST(Trainer, LearnsAndWritesWhatItMeasured) {
  const TinyRun run;
  const auto outcome = run.train({"logging_steps=6"});
  EXPECT_EQ(outcome.step, 20);
  EXPECT_EQ(outcome.result, run / "out/checkpoint-20");
  const auto records = metrics_of(run / "out");
  EXPECT_EQ(column(records, "step"), (std::vector<double>{6, 12, 18, 20}))
      << "the last step is always logged";
  const auto loss = column(records, "loss");
  EXPECT_LT(loss.back(), loss.front() - 0.5);
  EXPECT_NEAR(loss.front(), std::log(300.0), 0.8);
  for (const char* name : {"run.json", "metrics.jsonl", "recipe.yaml", "report.html", "log.txt"}) {
    EXPECT_TRUE(real_files().exists(run / ("out/" + std::string(name)))) << name;
  }
  EXPECT_FALSE(real_files().exists(run / "out/.lock"));
  // The recipe it wrote is the recipe it ran.
  EXPECT_EQ(load_recipe(real_files(), run / "out/recipe.yaml").to_json(),
            run.recipe({"logging_steps=6"}).to_json());
}

TEST(Trainer, ProfiledStepsAreInTheTraceAndChangeNothing) {
  const TinyRun run;
  run.train({"max_steps=4", "logging_steps=1"});
  const auto plain = column(metrics_of(run / "out"), "loss");
  EXPECT_FALSE(real_files().exists(run / "out/trace.json"));
  run.train({"max_steps=4", "logging_steps=1", "profile_steps=2-3", "output_dir=@/traced"});
  EXPECT_EQ(column(metrics_of(run / "traced"), "loss"), plain);
  const Json trace = parse_json(real_files().read(run / "traced/trace.json"), "trace.json");
  std::vector<std::string> spans;
  std::map<std::string, int> ops;
  for (const Json& event : trace.at("traceEvents").as_array()) {
    if (event.at("ph").as_string() != "X") continue;
    const std::string& name = event.at("name").as_string();
    if (event.at("cat").as_string() == "step") {
      spans.push_back(name);
    } else {
      ++ops[name];
    }
  }
  EXPECT_EQ(spans, (std::vector<std::string>{"data", "step 2", "data", "step 3"}));
  EXPECT_GT(ops["linear dW"], 0);
  EXPECT_EQ(ops["gradient norm"] % 2, 0) << "the same ops in both steps";
  // A run that ends before the last of them writes those that ran.
  run.train({"max_steps=4", "profile_steps=4-9", "output_dir=@/short"});
  EXPECT_TRUE(real_files().exists(run / "short/trace.json"));
}

TEST(Trainer, SchedulesAreInTheMetrics) {
  const TinyRun run;
  const auto rates = [&](const Overrides& overrides) {
    Overrides all = overrides;
    for (const char* common : {"max_steps=8", "learning_rate=0.1", "overwrite_output_dir=true"})
      all.push_back(common);
    run.train(all);
    return column(metrics_of(run / "out"), "learning_rate");
  };
  const auto near = [](const std::vector<double>& a, const std::vector<double>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12) << i;
  };
  near(rates({"lr_scheduler_type=constant"}), std::vector<double>(8, 0.1));
  near(rates({"lr_scheduler_type=linear"}), {0.1, 0.0875, 0.075, 0.0625, 0.05, 0.0375, 0.025, 0.0125});
  near(rates({"lr_scheduler_type=linear", "warmup_steps=4"}),
       {0, 0.025, 0.05, 0.075, 0.1, 0.075, 0.05, 0.025});
  near(rates({"lr_scheduler_type=constant_with_warmup", "warmup_ratio=0.25"}),
       {0, 0.05, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1});
  std::vector<double> cosine;
  for (int i = 0; i < 8; ++i) cosine.push_back(0.05 * (1 + std::cos(std::numbers::pi * i / 8)));
  near(rates({"lr_scheduler_type=cosine"}), cosine);
}

TEST(Trainer, EpochsCoverTheDataSet) {
  const TinyRun run;
  run.train({"max_steps=-1", "num_train_epochs=2", "eval_strategy=epoch", "val_size=20",
             "save_strategy=epoch", "packing=false"});
  const auto records = metrics_of(run / "out");
  // 100 documents left, 4 to a step.
  EXPECT_EQ(column(records, "step").back(), 50);
  EXPECT_EQ(column(records, "samples").back(), 200);
  EXPECT_DOUBLE_EQ(column(records, "epoch").back(), 2);
  std::vector<double> evaluated;
  for (const Json& record : records) {
    if (record.find("eval_set") != nullptr) evaluated.push_back(record.at("step").as_double());
  }
  EXPECT_EQ(evaluated, (std::vector<double>{25, 50}));
  std::vector<std::int64_t> saved;
  for (const auto& checkpoint : list_checkpoints(real_files(), run / "out")) saved.push_back(checkpoint.step);
  EXPECT_EQ(saved, (std::vector<std::int64_t>{25, 50}));
}

TEST(Trainer, EvaluationIsIndependentOfTheBatch) {
  const TinyRun run;
  const auto evaluate_with = [&](const std::string& batch) {
    run.train({"max_steps=3", "eval_strategy=steps", "eval_steps=3",
               "eval_dataset={one: @/eval.txt, two: @/text.txt}", "overwrite_output_dir=true",
               "per_device_eval_batch_size=" + batch});
    return metrics_of(run / "out");
  };
  const auto few = evaluate_with("1"), many = evaluate_with("64");
  ASSERT_EQ(few.size(), 5u);
  EXPECT_EQ(few[3].at("eval_set").as_string(), "one");
  EXPECT_EQ(few[4].at("eval_set").as_string(), "two");
  for (const std::size_t set : {3u, 4u}) {
    EXPECT_NEAR(few[set].at("eval_loss").as_double(), many[set].at("eval_loss").as_double(), 1e-6);
    EXPECT_EQ(few[set].at("eval_tokens"), many[set].at("eval_tokens"));
    EXPECT_EQ(few[set].at("eval_samples"), many[set].at("eval_samples"));
    EXPECT_EQ(few[set].at("eval_token_accuracy"), many[set].at("eval_token_accuracy"));
  }
}

TEST(Trainer, BitsPerByteByHand) {
  const TinyRun run;
  run.train(
      {"max_steps=2", "eval_strategy=steps", "eval_steps=2", "eval_dataset=@/eval.txt", "cutoff_len=64"});
  const Json result = metrics_of(run / "out").back();
  // Documents are shorter than 64 tokens: of each, everything but its first token is predicted.
  const Tokenizer tokenizer = Tokenizer::load(real_files(), run / "tok");
  const std::string text = real_files().read(run / "eval.txt");
  std::int64_t bytes = 0, tokens = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find("\n\n", begin), text.size());
    const auto ids = tokenizer.encode(text.substr(begin, end - begin));
    ASSERT_LT(ids.size(), 64u);
    tokens += static_cast<std::int64_t>(ids.size());  // one end token more, one first token less
    bytes += static_cast<std::int64_t>(end - begin - tokenizer.token_bytes(ids[0]).size());
    begin = end + 2;
  }
  EXPECT_EQ(result.at("eval_tokens").as_int(), tokens);
  const double nats = result.at("eval_loss").as_double() * static_cast<double>(tokens);
  EXPECT_NEAR(result.at("eval_bits_per_byte").as_double(),
              nats / std::numbers::ln2 / static_cast<double>(bytes), 1e-12);
  EXPECT_NEAR(result.at("eval_perplexity").as_double(), std::exp(result.at("eval_loss").as_double()), 1e-9);
}

TEST(Trainer, TheBestModelIsKeptAndReturned) {
  const TinyRun run;
  // Of a model that learns, the largest loss comes early, whatever the rounding of this build: it counts as
  // the best.
  const auto outcome = run.train({"max_steps=24", "learning_rate=0.01", "eval_strategy=steps", "eval_steps=2",
                                  "save_steps=2", "save_total_limit=2", "val_size=12",
                                  "load_best_model_at_end=true", "greater_is_better=true"});
  double best = 0;
  std::int64_t best_step = 0;
  for (const Json& record : metrics_of(run / "out")) {
    const Json* loss = record.find("eval_loss");
    if (loss == nullptr || loss->as_double() <= best) continue;
    best = loss->as_double();
    best_step = record.at("step").as_int();
  }
  ASSERT_LT(best_step, 22) << "the test needs a best that is not the last";
  EXPECT_EQ(outcome.result, run / format("out/checkpoint-{}", best_step));
  EXPECT_EQ(outcome.step, 24);
  std::vector<std::int64_t> kept;
  for (const auto& checkpoint : list_checkpoints(real_files(), run / "out")) kept.push_back(checkpoint.step);
  EXPECT_EQ(kept, (std::vector<std::int64_t>{best_step, 24}));
  const Json state =
      parse_json(real_files().read(run / "out/checkpoint-24/trainer_state.json"), "trainer_state.json");
  EXPECT_EQ(state.at("best_model_checkpoint").as_string(), outcome.result);
  EXPECT_EQ(state.at("best_metric").as_double(), best);
}

TEST(Trainer, AFinalCheckpointIsAModelFolder) {
  const TinyRun run;
  const std::string result = run.train({"max_steps=3", "model_name_or_path=@/gpt2.json"}).result;
  const auto read = [&](const char* name) {
    return parse_json(real_files().read(join_path(result, name)), name);
  };
  const Json config = read("config.json");
  EXPECT_EQ(config.at("architectures"), Json(Json::Array{Json("GPT2LMHeadModel")}));
  EXPECT_EQ(config.at("torch_dtype").as_string(), "float32");
  EXPECT_EQ(config.at("eos_token_id").as_int(), 0);
  EXPECT_TRUE(config.at("bos_token_id").is_null()) << "GPT-2's own would be outside the vocabulary";
  EXPECT_EQ(config.at("n_embd").as_int(), 32);
  EXPECT_EQ(read("generation_config.json").at("eos_token_id").as_int(), 0);
  EXPECT_EQ(read("tokenizer_config.json").at("eos_token").as_string(), "<|endoftext|>");
  const Json state = read("trainer_state.json");
  EXPECT_EQ(state.at("global_step").as_int(), 3);
  EXPECT_EQ(state.at("max_steps").as_int(), 3);
  EXPECT_EQ(state.at("log_history").size(), 3u);
  const auto tokenizer = Tokenizer::load(real_files(), result);
  EXPECT_EQ(tokenizer.fingerprint(), Tokenizer::load(real_files(), run / "tok").fingerprint());
  // And lode trains on from it.
  run.train({"max_steps=1", "train_from_scratch=false", "model_name_or_path=" + result,
             "tokenizer_name_or_path=", "learning_rate=0", "output_dir=@/on"});
  EXPECT_EQ(numbers_of(run / "on/checkpoint-1/model.safetensors"),
            numbers_of(join_path(result, "model.safetensors")));
}

TEST(Trainer, SamplesAreWritten) {
  const TinyRun run;
  run.train({"max_steps=4", "eval_strategy=steps", "eval_steps=2", "val_size=5",
             "generate_prompts=[the cat, we]", "generate_max_new_tokens=4"});
  std::vector<std::string> prompts;
  for (const Json& record : metrics_of(run / "out")) {
    if (const Json* prompt = record.find("sample_prompt")) prompts.push_back(prompt->as_string());
  }
  EXPECT_EQ(prompts, (std::vector<std::string>{"the cat", "we", "the cat", "we"}));
  // What would fail at the first evaluation fails before the first step.
  const std::string words = std::string(400, 'q');
  EXPECT_NE(
      run.error({"eval_strategy=steps", "val_size=5", "generate_prompts=[" + words + "]", "output_dir=@/no"})
          .find("generate_prompts"),
      std::string::npos);
}

TEST(OutputFolder, OfAnotherRunIsRefused) {
  const TinyRun run;
  run.train({"max_steps=2", "logging_dir=@/logs"});
  write_file_atomically(real_files(), run / "out/notes.txt", "mine");
  write_file_atomically(real_files(), run / "logs/run.json", "mine too");
  const RunTrace before = trace_of(run / "out");
  EXPECT_NE(run.error({"max_steps=2"}).find("holds another run"), std::string::npos);
  EXPECT_NE(run.error({"max_steps=2", "output_dir=@/other", "logging_dir=@/logs"}).find("holds another run"),
            std::string::npos)
      << "its metrics would be lost";
  EXPECT_EQ(kind_of([&] { run.train({"max_steps=2"}); }), ErrorKind::usage);
  // A run that cannot begin removes nothing, even when it may.
  write_file_atomically(real_files(), run / "bad.jsonl", "{\n");
  EXPECT_NE(run.error({"overwrite_output_dir=true", "logging_dir=@/logs", "dataset=@/bad.jsonl"}), "");
  EXPECT_TRUE(real_files().exists(run / "out/checkpoint-2/manifest.json"));
  EXPECT_TRUE(real_files().exists(run / "logs/metrics.jsonl"));

  run.train({"max_steps=1", "overwrite_output_dir=true", "logging_dir=@/logs", "report_to=tensorboard"});
  EXPECT_FALSE(real_files().exists(run / "out/checkpoint-2"));
  EXPECT_TRUE(real_files().exists(run / "out/checkpoint-1"));
  EXPECT_EQ(real_files().read(run / "out/notes.txt"), "mine");
  EXPECT_EQ(real_files().read(run / "logs/run.json"), "mine too") << "a run writes none into logging_dir";
  EXPECT_EQ(read_metrics(real_files(), run / "logs/metrics.jsonl").records.size(), 1u);
}

TEST(OutputFolder, ThatCannotBeWrittenIsAnErrorBeforeTraining) {
  const TinyRun run;
  write_file_atomically(real_files(), run / "file", "");
  EXPECT_EQ(kind_of([&] { run.train({"output_dir=@/file"}); }), ErrorKind::usage);
  EXPECT_EQ(kind_of([&] { run.train({"output_dir=@/file/below"}); }), ErrorKind::data);
  EXPECT_NE(run.error({"output_dir=@/file/below"}).find(run / "file/below"), std::string::npos);
  // A folder that exists and takes no files, even from root.
  EXPECT_EQ(kind_of([&] { run.train({"output_dir=/proc/self"}); }), ErrorKind::data);
  EXPECT_NE(run.error({"output_dir=/proc/self"}).find("/proc/self"), std::string::npos);
}

}  // namespace
}  // namespace lode
