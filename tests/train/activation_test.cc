// What is kept between forward and backward changes memory and time, never a bit of the result.
#include <gtest/gtest.h>

#include <algorithm>

#include "train/trainer_testing.h"

namespace lode {
namespace {

struct Policy {
  std::string name;
  Overrides keys;
};

std::vector<Policy> policies() {
  return {{"full", {"gradient_checkpointing=true"}},
          {"every second", {"recompute=every_k", "recompute_interval=2"}},
          {"selective", {"recompute=selective", "recompute_modules=norm,mlp,attention"}},
          {"offload, two buffers", {"activation_policy=offload", "offload_dir=@"}},
          {"offload, one buffer", {"activation_policy=offload", "checkpoint.double_buffer=false"}},
          {"offload, synchronous",
           {"activation_offloading=true", "checkpoint.synchronous=true", "checkpoint.double_buffer=false"}},
          {"offload of every second", {"activation_policy=offload", "recompute=every_k"}},
          {"offload of what blocks save", {"activation_policy=offload", "recompute=selective"}},
          {"the same, one buffer, attention again",
           {"activation_policy=offload", "recompute=selective", "recompute_modules=attention",
            "checkpoint.double_buffer=false"}}};
}

std::vector<Policy> with_keep(std::vector<Policy> list) {
  list.push_back({"keep", {}});
  return list;
}

// Each of them with dynamic and with captured execution.
std::vector<Policy> with_capture(const std::vector<Policy>& list) {
  std::vector<Policy> both = list;
  for (Policy policy : list) {
    policy.name += ", captured";
    policy.keys.push_back("graph=captured");
    both.push_back(policy);
  }
  return both;
}

Overrides with(Overrides first, const Overrides& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

Json run_json(const TinyRun& run, const std::string& output) {
  const std::string file = run / (output + "/run.json");
  return parse_json(real_files().read(file), file);
}

std::int64_t peak_activations(const Json& record) {
  return record.at("memory").at("by_tag").at("activations").at("peak").as_int();
}

// What is trained, and in which precision.
struct Kind {
  std::string name;
  Overrides keys;
  bool f32 = false, adapter = false;
};

std::vector<Kind> kinds(const std::string& base) {
  // Without a large epsilon Adam divides tiny gradients by their own size, and rounding becomes an update.
  const Overrides lora = {"model_name_or_path=" + base,
                          "train_from_scratch=false",
                          "tokenizer_name_or_path=",
                          "finetuning_type=lora",
                          "lora_rank=4",
                          "adam_epsilon=1e-2"};
  return {{"full", {"adam_epsilon=1e-2"}, true},
          {"dropout", {"model_name_or_path=@/gpt2.json", "bf16=true"}},
          {"noise", {"packing=false", "neftune_noise_alpha=5", "bf16=true"}},
          {"lora", with(lora, {"lora_dropout=0.1"}), true, true},
          {"lora, bf16", with(lora, {"lora_dropout=0.1", "bf16=true"}), false, true},
          {"lora, quantised", with(lora, {"quantization_bit=4"}), true, true}};
}

std::vector<double> column(const std::string& output_dir, std::string_view key) {
  std::vector<double> values;
  for (const Json& record : metrics_of(output_dir)) values.push_back(record.at(key).as_double());
  return values;
}

std::vector<float> trained_numbers(const std::string& output_dir, bool adapter) {
  return numbers_of(
      join_path(newest_checkpoint(output_dir), adapter ? "adapter_model.safetensors" : "model.safetensors"));
}

// All that is promised of other splits of a global batch (docs/numerics.md): the order of additions differs.
void expect_same_but_for_rounding(const std::string& one, const std::string& other, bool adapter) {
  for (const char* key : {"loss", "grad_norm"}) {
    const auto a = column(one, key), b = column(other, key);
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-6 * a[i]) << key << " " << i;
  }
  EXPECT_LT(largest_difference(trained_numbers(one, adapter), trained_numbers(other, adapter)), 1e-6);
}

const std::vector<Overrides> kSplits = {{"per_device_train_batch_size=4"},
                                        {"per_device_train_batch_size=2", "gradient_accumulation_steps=2"},
                                        {"per_device_train_batch_size=1", "gradient_accumulation_steps=4"}};

// Recomputation, offload and its buffers, capture, micro-batches and the update in backward, in all their
// combinations: losses, gradient norms, weights and optimizer state equal those of plain keep to the bit. The
// update in backward goes with neither clipping nor accumulation (docs/optimizers.md).
TEST(Activations, EveryCombinationTrainsToTheBitsOfKeep) {
  const TinyRun run;
  run.train({"output_dir=@/base", "max_steps=2"});
  const Overrides common = {"max_steps=4", "overwrite_output_dir=true", "learning_rate=0.02"};
  for (const Kind& kind : kinds(newest_checkpoint(run / "base"))) {
    std::vector<RunTrace> kept;
    for (std::size_t s = 0; s < kSplits.size(); ++s) {
      const Overrides base = with(with(common, kind.keys), with(kSplits[s], {"max_grad_norm=0.02"}));
      const std::string keep = format("keep{}", s);
      run.train(with(base, {"output_dir=@/" + keep}));
      kept.push_back(trace_of(run / keep));
      for (const Policy& policy : with_capture(with_keep(policies()))) {
        SCOPED_TRACE(format("{}: {}, split {}", kind.name, policy.name, s));
        run.train(with(with(base, policy.keys), {"output_dir=@/other"}));
        EXPECT_TRUE(trace_of(run / "other") == kept[s]);
        // Of two blocks, two buffers hold all that they save.
        const bool same = policy.name.starts_with("keep") || policy.name.starts_with("offload of what");
        if (kind.adapter && !same) {
          EXPECT_LT(peak_activations(run_json(run, "other")), peak_activations(run_json(run, keep)));
        }
      }
      SCOPED_TRACE(format("{}: split {}", kind.name, s));
      if (kind.f32) expect_same_but_for_rounding(run / "keep0", run / keep, kind.adapter);
    }
    const Overrides unclipped = with(with(common, kind.keys), with(kSplits[0], {"max_grad_norm=0"}));
    run.train(with(unclipped, {"output_dir=@/keep"}));
    const RunTrace ordinary = trace_of(run / "keep");
    EXPECT_FALSE(ordinary == kept[0]) << kind.name << ": nothing was clipped";
    for (const Policy& policy : with_capture(with_keep(policies()))) {
      SCOPED_TRACE(format("{}: {}, update in backward", kind.name, policy.name));
      run.train(with(with(unclipped, policy.keys), {"optim_in_backward=true", "output_dir=@/other"}));
      EXPECT_TRUE(trace_of(run / "other") == ordinary);
    }
  }
}

TEST(Activations, AResumedRunMayKeepOtherwise) {
  const TinyRun run;
  run.train({"output_dir=@/parts", "max_steps=3", "lr_scheduler_type=constant"});
  run.train({"output_dir=@/whole", "max_steps=6", "lr_scheduler_type=constant"});
  run.train({"output_dir=@/parts", "max_steps=6", "lr_scheduler_type=constant", "resume_from_checkpoint=true",
             "activation_policy=offload"});
  EXPECT_EQ(trace_of(run / "parts").tensors, trace_of(run / "whole").tensors);
}

TEST(Activations, TheRecordTellsWhatWasRecomputedAndOffloaded) {
  const TinyRun run;
  run.train({"output_dir=@/keep", "max_steps=3"});
  run.train({"output_dir=@/out", "max_steps=3", "activation_policy=offload"});
  const Json keep = run_json(run, "keep"), offload = run_json(run, "out");
  EXPECT_EQ(keep.at("training").at("recomputed_flops").as_double(), 0);
  const double flops = keep.at("training").at("flops").as_double();
  EXPECT_EQ(offload.at("training").at("flops").as_double(), flops) << "MFU counts recomputation";
  // Both blocks' forward: a third of the step less the head's part.
  const double again = offload.at("training").at("recomputed_flops").as_double();
  EXPECT_GT(again, 0.15 * flops);
  EXPECT_LT(again, 0.34 * flops);
  const Json& counters = offload.at("counters");
  EXPECT_EQ(counters.at("offload: tensors written").as_int(), 3 * 2);
  EXPECT_GE(counters.at("offload: microseconds stalled").as_int(), 0);
  EXPECT_EQ(keep.at("counters").find("offload: tensors written"), nullptr);
  EXPECT_NE(run.log().find("recomputed"), std::string::npos);
  EXPECT_EQ(real_files().list(run / "out"), real_files().list(run / "keep")) << "the file has a name";
}

// With six layers instead of two.
void make_deep(const TinyRun& run) {
  std::string deep = real_files().read(run / "llama.json");
  deep.replace(deep.find("\"num_hidden_layers\": 2"), 22, "\"num_hidden_layers\": 6");
  write_file_atomically(real_files(), run / "deep.json", deep);
}

TEST(Activations, WhatBlocksSaveIsOffloadedAndNotMadeAgain) {
  const TinyRun run;
  make_deep(run);
  const Overrides base = {"max_steps=3", "model_name_or_path=@/deep.json", "recompute=selective"};
  run.train(with(base, {"output_dir=@/memory"}));
  run.train(with(base, {"output_dir=@/file", "activation_policy=offload"}));
  run.train(with(base, {"output_dir=@/all", "activation_policy=offload", "recompute_modules=norm"}));
  EXPECT_TRUE(trace_of(run / "file") == trace_of(run / "memory"));
  EXPECT_LT(peak_activations(run_json(run, "file")), 0.7 * peak_activations(run_json(run, "memory")));
  EXPECT_EQ(run_json(run, "file").at("training").at("recomputed_flops").as_double(), 0);
  const auto written = [&](const char* output) {
    return run_json(run, output).at("counters").at("offload: tensors written").as_int();
  };
  // Of each block two sums and two statistics of norms, q|k|v, the attention's result and its statistic,
  // gate|up; the activation's result too where it is not made again.
  EXPECT_EQ(written("file"), 3 * 6 * 8);
  EXPECT_EQ(written("all"), 3 * 6 * 9);
}

TEST(Activations, SegmentsAreBuiltOncePerMicroBatch) {
  const TinyRun run;
  const Overrides base = {"max_steps=3", "per_device_train_batch_size=2", "gradient_accumulation_steps=2"};
  run.train(with(base, {"output_dir=@/shared"}));
  run.train(with(base, {"output_dir=@/own", "metadata_cache=false"}));
  run.train(with(base, {"output_dir=@/again", "metadata_cache=false", "recompute=full"}));
  EXPECT_TRUE(trace_of(run / "own") == trace_of(run / "shared"));
  EXPECT_TRUE(trace_of(run / "again") == trace_of(run / "shared"));
  const auto built = [&](const char* output) {
    return run_json(run, output).at("counters").at("segments: built").as_int();
  };
  EXPECT_EQ(built("shared"), 3 * 2);
  EXPECT_EQ(built("own"), 3 * 2 * (1 + 2));        // and for each of two layers
  EXPECT_EQ(built("again"), 3 * 2 * (1 + 2 + 2));  // and when they run again
  EXPECT_GT(run_json(run, "shared").at("counters").at("segments: used").as_int(), 3 * 2 * 4);
}

TEST(Activations, FoldersThatCannotBeUsedAreNamedBeforeAnyStep) {
  const TinyRun run;
  const std::string absent = run.error({"activation_policy=offload", "offload_dir=@/absent"});
  EXPECT_NE(absent.find("offload_dir: " + run / "absent"), std::string::npos) << absent;
  EXPECT_NE(absent.find("make the folder"), std::string::npos);
  const std::string file = run.error({"activation_policy=offload", "offload_dir=@/text.txt"});
  EXPECT_NE(file.find("is no folder"), std::string::npos) << file;
}

TEST(Activations, ASlowFolderIsNamedAtTheEnd) {
  const TinyRun run;
  const Recipe recipe = run.recipe({"activation_policy=offload", "offload_dir=@/slow"});
  OffloadCounts counts;
  counts.time_stalled = 0.9;
  EXPECT_EQ(advice_on_slow_offload(recipe, counts, 10), "");
  counts.time_stalled = 2;
  const std::string advice = advice_on_slow_offload(recipe, counts, 10);
  EXPECT_NE(advice.find("waited 2.0 s of 10.0 s"), std::string::npos) << advice;
  EXPECT_NE(advice.find(run / "slow"), std::string::npos);
  EXPECT_EQ(advice.find("double_buffer"), std::string::npos);
  const Recipe single = run.recipe({"activation_policy=offload", "checkpoint.double_buffer=false"});
  EXPECT_NE(advice_on_slow_offload(single, counts, 10).find("double_buffer: true"), std::string::npos);
}

TEST(Activations, KeysThatContradictAreNamed) {
  const TinyRun run;
  const auto problem = [&](const Overrides& keys) { return error_of([&] { run.recipe(keys); }); };
  EXPECT_NE(problem({"activation_policy=keep", "gradient_checkpointing=true"}).find("contradict"),
            std::string::npos);
  EXPECT_NE(problem({"activation_policy=keep", "recompute=selective"}).find("contradict"), std::string::npos);
  EXPECT_NE(problem({"offload_dir=@"}).find("means nothing without activation_policy: offload or auto"),
            std::string::npos);
  EXPECT_NE(problem({"activation_policy=auto"}).find("needs activation_memory"), std::string::npos);
  EXPECT_NE(problem({"activation_policy=auto", "activation_memory=much"}).find("expected a number of bytes"),
            std::string::npos);
  EXPECT_NE(problem({"recompute=full", "recompute_interval=3"}).find("without recompute: every_k"),
            std::string::npos);
  EXPECT_NE(
      problem({"recompute=selective", "recompute_modules=head"}).find("expected norm, mlp or attention"),
      std::string::npos);
  EXPECT_NE(
      problem({"activation_policy=offload", "checkpoint.synchronous=true", "checkpoint.double_buffer=true"})
          .find("contradict"),
      std::string::npos);
}

TEST(Activations, OtherToolsNamesAndTheResolvedRecipe) {
  const TinyRun run;
  using A = Recipe::Activations;
  EXPECT_EQ(run.recipe({}).activation_policy, A::keep);
  EXPECT_EQ(run.recipe({"gradient_checkpointing=true"}).activation_policy, A::recompute);
  EXPECT_EQ(run.recipe({"recompute_granularity=selective"}).activation_policy, A::recompute);
  EXPECT_EQ(run.recipe({"activation_offloading=true"}).activation_policy, A::offload);
  EXPECT_EQ(run.recipe({"gradient_checkpointing=true", "activation_policy=offload"}).activation_policy,
            A::offload);
  const auto notices = run.recipe({"training.checkpoint.double_buffer=true"}).notices;
  EXPECT_TRUE(std::ranges::any_of(notices, [](const std::string& notice) {
    return notice.find("nothing is offloaded") != std::string::npos;
  }));
  for (const Policy& policy : policies()) {
    const Recipe recipe = run.recipe(policy.keys);
    const Recipe again = recipe_from_text(recipe.to_yaml(), "again");
    EXPECT_EQ(again.to_json(), recipe.to_json()) << policy.name;
    EXPECT_EQ(again.activation_policy, recipe.activation_policy);
    EXPECT_EQ(again.recompute, recipe.recompute);
    EXPECT_EQ(again.double_buffer, recipe.double_buffer);
  }
}

TEST(Activations, TheBudgetChoosesTheCheapestThatFits) {
  const TinyRun run;
  make_deep(run);
  const Overrides base = {"max_steps=2", "overwrite_output_dir=true", "model_name_or_path=@/deep.json"};
  run.train(with(base, {"output_dir=@/keep"}));
  const RunTrace kept = trace_of(run / "keep");
  const std::int64_t peak = peak_activations(run_json(run, "keep"));
  std::int64_t last = peak + 1;
  std::vector<std::string> chosen;
  for (const double share : {1.0, 0.8, 0.5}) {
    SCOPED_TRACE(share);
    const auto budget = static_cast<std::int64_t>(share * static_cast<double>(peak));
    run.train(with(base, {"activation_policy=auto", format("activation_memory={}", budget)}));
    EXPECT_TRUE(trace_of(run / "out") == kept);
    const Json record = run_json(run, "out");
    const std::int64_t used = peak_activations(record);
    EXPECT_LE(used, budget);
    EXPECT_LE(used, last);
    last = used;
    for (const Json& fact : record.at("optimisations").as_array()) {
      if (fact.at("name").as_string() == "activations") chosen.push_back(fact.at("chosen").as_string());
    }
  }
  ASSERT_EQ(chosen.size(), 3u);
  EXPECT_EQ(chosen[0], "keep");
  EXPECT_EQ(chosen[1], "recompute norm, mlp of every block");
  EXPECT_TRUE(chosen[2].starts_with("recompute every block") || chosen[2].starts_with("recompute one of"))
      << chosen[2];
  const std::string error =
      run.error({"activation_policy=auto", "activation_memory=4KiB", "output_dir=@/little"});
  EXPECT_NE(error.find("activation_memory: 4.00 KiB is too little"), std::string::npos) << error;
  EXPECT_NE(error.find("offload"), std::string::npos);
}

}  // namespace
}  // namespace lode
