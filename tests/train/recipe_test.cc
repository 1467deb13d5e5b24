#include "train/recipe.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/format.h"
#include "lode/error.h"
#include "train/keys.h"

namespace lode {
namespace {

const std::string kMinimal = "model_name_or_path: m\ndataset: a.txt\noutput_dir: out\n";

Recipe read(const std::string& extra, std::vector<std::string> overrides = {}) {
  return recipe_from_text(kMinimal + extra, "r.yaml", overrides);
}

std::string problem(const std::string& yaml, std::vector<std::string> overrides = {}) {
  try {
    recipe_from_text(yaml, "r.yaml", overrides);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::usage);
    return e.what();
  }
  return "no error";
}

std::string problem_of(const std::string& extra, std::vector<std::string> overrides = {}) {
  return problem(kMinimal + extra, std::move(overrides));
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool has_notice(const Recipe& recipe, const std::string& part) {
  return std::ranges::any_of(recipe.notices, [&](const std::string& n) { return contains(n, part); });
}

#define EXPECT_HAS(text, part) \
  EXPECT_TRUE(contains(text, part)) << "\"" << (part) << "\" is not in: " << (text)

TEST(Recipe, DefaultsAreTheDocumentedOnes) {
  const Recipe r = read("");
  EXPECT_EQ(r.model_name_or_path, "m");
  EXPECT_EQ(r.dataset, std::vector<std::string>{"a.txt"});
  EXPECT_EQ(r.cutoff_len, 2048);
  EXPECT_EQ(r.per_device_train_batch_size, 8);
  EXPECT_EQ(r.num_train_epochs, 3);
  EXPECT_EQ(r.learning_rate, 5e-5);
  EXPECT_TRUE(r.packing);
  EXPECT_FALSE(r.bf16.has_value());
  EXPECT_EQ(r.source_file, "r.yaml");
  EXPECT_TRUE(has_notice(r, "logging_steps 10 (500)"));
}

TEST(Recipe, ReadsNumbersThatPlainYamlTakesForText) {
  EXPECT_EQ(read("learning_rate: 1e-5\n").learning_rate, 1e-5);
  EXPECT_EQ(read("learning_rate: 1.0e-4\n").learning_rate, 1e-4);
  EXPECT_EQ(read("learning_rate: .5\n").learning_rate, 0.5);
  EXPECT_EQ(read("max_steps: 1e3\n").max_steps, 1000);
  EXPECT_EQ(read("max_steps: 10_000\n").max_steps, 10000);
  EXPECT_HAS(problem_of("learning_rate: \"1e-5\"\n"), "expected a number");
  EXPECT_HAS(problem_of("learning_rate: .nan\n"), "expected a number");
  EXPECT_HAS(problem_of("learning_rate: 1e999\n"), "expected a number");
  EXPECT_HAS(problem_of("max_steps: 1_\n"), "expected an integer");
  EXPECT_HAS(problem_of("max_steps: 99999999999999999999\n"), "expected an integer");
  EXPECT_HAS(problem_of("max_steps: 2.5\n"), "expected an integer");
}

TEST(Recipe, AnUnknownKeyNamesPlaceAndNearest) {
  const std::string text = problem_of("learning_rat: 1\n");
  EXPECT_HAS(text, "r.yaml:4: unknown key learning_rat, did you mean learning_rate?");
  EXPECT_HAS(problem_of("base_modl: 1\n"), "did you mean model_name_or_path?");
  EXPECT_HAS(problem_of("zzzzzzzzzzzz: 1\n"), "lode recipe schema");
  EXPECT_HAS(problem_of("", {"cutof_len=5"}),
             "command line: unknown key cutof_len, did you mean cutoff_len?");
  EXPECT_HAS(problem_of("training:\n  unheard: 1\n"), "r.yaml:5: unknown key training.unheard");
}

TEST(Recipe, WrongTypesAndRangesSayWhatIsExpected) {
  EXPECT_HAS(problem_of("cutoff_len: many\n"),
             "r.yaml:4: cutoff_len: expected an integer from 2 to 1048576, found many");
  EXPECT_HAS(problem_of("cutoff_len: 1\n"), "from 2 to 1048576, found 1");
  EXPECT_HAS(problem_of("cutoff_len: [1]\n"), "found a list");
  EXPECT_HAS(problem_of("adam_beta1: 1\n"), "expected a number from 0 and below 1, found 1");
  EXPECT_HAS(problem_of("num_train_epochs: 0\n"), "expected a number above 0, found 0");
  EXPECT_HAS(problem_of("strict: 1\n"), "expected true or false, found 1");
  EXPECT_HAS(problem_of("bf16: maybe\n"), "expected true, false or auto");
  EXPECT_HAS(problem_of("packing_strategy: tight\n"), "expected best_fit or blocks, found tight");
  EXPECT_HAS(problem_of("lr_scheduler_type: linaer\n"), "linear, cosine");
  EXPECT_HAS(problem_of("lr_scheduler_kwargs: 3\n"), "expected a block of keys");
  EXPECT_HAS(problem_of("output_dir: {a: b}\n"), "output_dir");
  EXPECT_HAS(problem_of("report_to: paper\n"), "expected tensorboard or none");
  EXPECT_HAS(problem_of("metric_for_best_model: speed\n"), "bits_per_byte");
}

TEST(Recipe, ListsAllProblemsAtOnce) {
  const std::string text = problem("cutoff_len: 0\nbf17: true\nseed: -1\ndataset: a.txt\n");
  EXPECT_HAS(text, "5 problems");
  EXPECT_HAS(text, "cutoff_len");
  EXPECT_HAS(text, "did you mean bf16?");
  EXPECT_HAS(text, "seed: expected an integer of at least 0");
  EXPECT_HAS(text, "model_name_or_path is missing");
  EXPECT_HAS(text, "output_dir is missing");
}

TEST(Recipe, RefusesRepetition) {
  EXPECT_HAS(problem_of("seed: 1\nseed: 1\n"), "r.yaml:5: seed is given twice (before at r.yaml:4)");
  EXPECT_HAS(problem_of("learning_rate: 1e-4\nlr: 1e-4\n"),
             "lr and learning_rate (at r.yaml:4) both set learning_rate");
  EXPECT_HAS(problem_of("", {"seed=1", "seed=2"}), "seed is given twice");
  EXPECT_HAS(problem_of("batch_size: 4\nmicro_batch_size: 2\n"), "both set per_device_train_batch_size");
}

TEST(Recipe, OverridesWin) {
  const std::vector<std::string> line = {
      "lr=1e-3",       "dataset=[x.txt, \"y, z.txt\"]", "run_name=",
      "max_samples=5", "lr_scheduler_type=cosine",      "lr_scheduler_kwargs={num_cycles: 1.5}"};
  const Recipe r = read("learning_rate: 1\nmax_samples: 7\nrun_name: old\n", line);
  EXPECT_EQ(r.learning_rate, 1e-3);
  EXPECT_EQ(r.dataset, (std::vector<std::string>{"x.txt", "y, z.txt"}));
  EXPECT_EQ(r.run_name, "");
  EXPECT_EQ(r.max_samples, 5);
  EXPECT_EQ(r.num_cycles, 1.5);
  EXPECT_EQ(read("max_samples: 7\n", {"max_samples=null"}).max_samples, std::nullopt);
  EXPECT_EQ(read("cutoff_len: wrong\n", {"cutoff_len=64"}).cutoff_len, 64);
  EXPECT_EQ(read("", {"lr_scheduler_type=cosine", "lr_scheduler_kwargs.num_cycles=2"}).num_cycles, 2);
  EXPECT_HAS(problem_of("", {"seed"}), "expected key=value, found 'seed'");
  EXPECT_HAS(problem_of("", {"=1"}), "expected key=value");
  EXPECT_HAS(problem_of("", {"dataset=[a"}), "command line, dataset");
  const std::vector<std::string> all = {"model_name_or_path=m", "dataset=a,b", "output_dir=o"};
  EXPECT_EQ(recipe_from_overrides(all).dataset.size(), 2u);
}

TEST(Recipe, ArgumentsAreAPathOrOverrides) {
  const std::string path = testing::TempDir() + "arguments.yaml";
  write_file_atomically(real_files(), path, kMinimal);
  const std::vector<std::string> with_path = {path, "seed=3"};
  EXPECT_EQ(recipe_from_arguments(real_files(), with_path).seed, 3);
  EXPECT_EQ(recipe_from_arguments(real_files(), with_path).source_file, path);
  const std::vector<std::string> without = {"model_name_or_path=m", "dataset=a", "output_dir=o"};
  EXPECT_EQ(recipe_from_arguments(real_files(), without).output_dir, "o");
  EXPECT_THROW(recipe_from_arguments(real_files(), {}), Error);
}

TEST(Recipe, ContradictionsNameBoth) {
  const auto both = [](const std::string& yaml, const std::string& a, const std::string& b) {
    const std::string text = problem_of(yaml);
    EXPECT_HAS(text, a);
    EXPECT_HAS(text, b);
    EXPECT_HAS(text, "r.yaml:");
  };
  both("bf16: true\nfp16: true\n", "bf16 (r.yaml:4)", "fp16 (r.yaml:5)");
  both("val_size: 0.1\neval_dataset: b.txt\n", "val_size (r.yaml:4)", "eval_dataset (r.yaml:5)");
  both("load_best_model_at_end: true\n", "load_best_model_at_end", "eval_strategy is no");
  both("early_stopping_patience: 2\n", "early_stopping_patience", "eval_strategy is no");
  both("generate_prompts: In the\n", "generate_prompts", "eval_strategy is no");
  both("packing: false\npacking_strategy: blocks\n", "packing: false", "packing_strategy");
  both("packing_strategy: blocks\ntruncation_strategy: drop\n", "packing_strategy: blocks",
       "truncation_strategy");
  both("eval_strategy: steps\n", "eval_strategy (r.yaml:4)", "val_size or eval_dataset");
  both("warmup_steps: 5\nwarmup_ratio: 0.1\n", "warmup_ratio (r.yaml:5)", "warmup_steps (r.yaml:4)");
  both("lr_scheduler_type: constant\nwarmup_steps: 5\n", "constant", "warmup_steps");
  both("lr_scheduler_kwargs: {num_decay_steps: 5}\n", "num_decay_steps", "lr_scheduler_type");
  both("lr_scheduler_type: wsd\n", "warmup_stable_decay", "num_decay_steps");
  both("lr_scheduler_type: cosine_with_min_lr\n", "cosine_with_min_lr", "min_lr");
  both("lr_scheduler_type: cosine_with_min_lr\nmin_lr: 1e-6\nlr_scheduler_kwargs: {min_lr_ratio: 0.1}\n",
       "min_lr (", "min_lr_ratio (");
  const std::string stream = "streaming: true\npacking_strategy: blocks\n";
  both(stream, "streaming (r.yaml:4)", "max_steps (default)");
  both("streaming: true\nmax_steps: 5\n", "streaming (r.yaml:4)", "packing_strategy: blocks");
  both(stream + "max_steps: 5\nval_size: 0.1\n", "streaming (r.yaml:4)", "val_size (r.yaml:7)");
  both(stream + "max_steps: 5\nsave_strategy: epoch\n", "streaming (r.yaml:4)",
       "save_strategy: epoch (r.yaml:7)");
  both(stream + "max_steps: 5\neval_dataset: b.txt\neval_strategy: epoch\n", "streaming (r.yaml:4)",
       "eval_strategy: epoch (r.yaml:8)");
  EXPECT_TRUE(read(stream + "max_steps: 5\n").streaming);
  both("val_size: 0.1\neval_strategy: steps\nload_best_model_at_end: true\nsave_strategy: epoch\n",
       "save_strategy", "eval_strategy");
  both("val_size: 0.1\neval_strategy: steps\nload_best_model_at_end: true\nsave_steps: 30\neval_steps: 20\n",
       "save_steps (30)", "eval_steps (20)");
}

TEST(Recipe, WhatIsNotSupportedYetSaysSo) {
  EXPECT_HAS(problem_of("fp8: true\n"), "not supported yet by lode: fp8");
  EXPECT_HAS(problem_of("stage: dpo\n"), "not supported yet by lode: stage dpo (available: pt or sft)");
  EXPECT_HAS(problem_of("finetuning_type: oft\n"), "not supported yet by lode: finetuning_type oft");
  EXPECT_HAS(problem_of("report_to: [tensorboard, wandb]\n"), "not supported yet by lode: report_to wandb");
  EXPECT_HAS(problem_of("optim: lomo\n"), "not supported yet by lode: optim lomo");
  EXPECT_HAS(problem_of("deepspeed: ds.json\n"), "not supported yet by lode: deepspeed");
  for (const char* steps : {"0-3", "5-3", "3-", "a", "1-101", "-3"}) {
    EXPECT_HAS(problem_of(format("profile_steps: \"{}\"\n", steps)), "such as 3-5") << steps;
  }
  EXPECT_HAS(problem_of("tensor_model_parallel_size: 2\n"), "not supported yet");
  EXPECT_HAS(problem_of("training:\n  moe:\n    fused_grouping: true\n"), "not supported yet");
  const Recipe r = read(
      "fp16: false\ndeepspeed: null\nuse_dora: false\nuse_galore: false\ntensor_model_parallel_size: 1\n");
  EXPECT_EQ(r.notices.size(), read("").notices.size());
}

TEST(Recipe, KeysWithoutEffectAreSaidOnce) {
  const Recipe r = read("trust_remote_code: true\nddp_timeout: 180000000\n");
  EXPECT_EQ(std::ranges::count_if(r.notices, [](const auto& n) { return contains(n, "trust_remote_code"); }),
            1);
  EXPECT_TRUE(has_notice(r, "ddp_timeout has no effect: one process"));
}

TEST(Recipe, AliasesOfOtherTools) {
  const Recipe swift = recipe_from_text("model: m\ndataset: a\noutput_dir: o\nmax_length: 64\n", "s.yaml");
  EXPECT_EQ(swift.model_name_or_path, "m");
  EXPECT_TRUE(has_notice(swift, "model is read as model_name_or_path (the former is the name in ms-swift)"));
  EXPECT_TRUE(has_notice(swift, "defaults that are not ms-swift's"));
  EXPECT_TRUE(has_notice(swift, "learning_rate 5e-05 (1e-5)"));
  EXPECT_FALSE(has_notice(swift, "cutoff_len 64"));

  const Recipe axolotl = recipe_from_text(
      "base_model: m\ndatasets:\n  - path: a.jsonl\n    type: completion\n  - b.txt\noutput_dir: "
      "o\nsequence_len: 128\n"
      "sample_packing: true\nval_set_size: 0.05\nnum_epochs: 2\nlr_scheduler: cosine\noptimizer: "
      "adamw_torch_fused\n"
      "excess_length_strategy: drop\nbf16: auto\ntf32: false\nadapter:\n",
      "a.yaml");
  EXPECT_EQ(axolotl.dataset, (std::vector<std::string>{"a.jsonl", "b.txt"}));
  EXPECT_EQ(axolotl.truncation_strategy, Recipe::TooLong::drop);
  EXPECT_EQ(axolotl.lr_scheduler_type, Recipe::Scheduler::cosine);
  EXPECT_EQ(axolotl.val_size, 0.05);

  const Recipe megatron = recipe_from_text(
      "model_name: m\ntrain_data: a\nsave: o\nmicro_batch_size: 2\nseq_length: 32\ntrain_iters: 10\nlr: "
      "1e-3\n"
      "min_lr: 1e-4\nlr_decay_style: cosine_with_min_lr\nlr_warmup_fraction: 0.1\nclip_grad: 0.5\nadam_eps: "
      "1e-6\n"
      "save_interval: 5\nlog_interval: 1\ntensor_model_parallel_size: 1\n",
      "m.yaml");
  EXPECT_EQ(megatron.max_steps, 10);
  EXPECT_EQ(megatron.min_lr, 1e-4);
  EXPECT_EQ(megatron.save_steps, 5);

  const Recipe nested = read(
      "training:\n  packed_sequence: true\n  metadata_cache: true\n  checkpoint:\n"
      "    interval_steps: 7\nbf16: {enabled: false}\nfp16: {enabled: false, fp16_opt_level: O2}\n");
  EXPECT_TRUE(nested.packing);
  EXPECT_EQ(nested.save_steps, 7);
  EXPECT_EQ(nested.bf16, false);
}

TEST(Recipe, SpecialValues) {
  EXPECT_EQ(read("resume_from_checkpoint: true\n").resume_from_checkpoint, "latest");
  EXPECT_EQ(read("resume_from_checkpoint: null\n").resume_from_checkpoint, "");
  EXPECT_EQ(read("resume_from_checkpoint: out/checkpoint-5\n").resume_from_checkpoint, "out/checkpoint-5");
  EXPECT_FALSE(read("resume_from_checkpoint: true\noverwrite_output_dir: true\n").overwrite_output_dir);
  EXPECT_EQ(read("warmup_steps: 0.1\n").warmup_ratio, 0.1);
  EXPECT_EQ(read("warmup_steps: 100\n").warmup_steps, 100);
  EXPECT_TRUE(read("report_to: none\n").report_to.empty());
  EXPECT_EQ(read("report_to: [none, tensorboard]\n").report_to.size(), 1u);
  EXPECT_EQ(read("save_strategy: no\n").save_strategy, Recipe::When::no);
  EXPECT_EQ(read("document_separator: \"\\n\\n\"\n").document_separator, "\n\n");
  EXPECT_EQ(read("document_separator: \\n\\n\n").document_separator, "\n\n");
  EXPECT_EQ(
      recipe_from_overrides(std::vector<std::string>{"model_name_or_path=m", "dataset=*.txt", "output_dir=o"})
          .dataset,
      std::vector<std::string>{"*.txt"});
  EXPECT_EQ(read("document_separator: '\\n'\n").document_separator, "\\n") << "quoted text is what it says";
  const Recipe sets = read(
      "eval_dataset:\n  wiki: w.txt\n  code: [c.txt, d.txt]\neval_strategy: epoch\n"
      "metric_for_best_model: eval_code_accuracy\n");
  ASSERT_EQ(sets.eval_dataset.size(), 2u);
  EXPECT_EQ(sets.eval_dataset[1], (Recipe::EvalSet{"code", {"c.txt", "d.txt"}}));
  EXPECT_EQ(sets.metric_for_best_model, "code_accuracy");
  EXPECT_TRUE(sets.greater_is_better);
  EXPECT_HAS(problem_of("eval_dataset: {a: x, a: y}\n"), "two sets have the name a");
  Recipe r = read("dataset_dir: data\n", {"dataset=[a.txt, /b.txt]"});
  EXPECT_EQ(r.data_paths(r.dataset), (std::vector<std::string>{"data/a.txt", "/b.txt"}));
}

TEST(Recipe, HostileYamlIsBounded) {
  EXPECT_HAS(problem("a: &x [1]\nb: *x\n"), "r.yaml:1: anchors and aliases");
  EXPECT_HAS(problem("a: " + std::string(100, '[') + std::string(100, ']') + "\n"), "nested deeper");
  EXPECT_HAS(problem("a: " + std::string(100000, '[')), "r.yaml:");
  EXPECT_HAS(problem("a: " + std::string(100000, '{')), "r.yaml:");
  std::string many = "dataset: [";
  for (int i = 0; i < 30000; ++i) many += "a,";
  EXPECT_HAS(problem(many + "]\n"), "more than 20000 values");
  EXPECT_HAS(problem(std::string((1 << 20) + 1, '#')), "too large");
  EXPECT_HAS(problem(std::string("a: b\0c", 6)), "NUL");
  EXPECT_HAS(problem("a: b\n---\nc: d\n"), "several YAML documents");
  EXPECT_HAS(problem("a: !!python/object:os.system x\n"), "is not accepted");
  EXPECT_HAS(problem("- a\n- b\n"), "expected lines of `key: value`, found a list");
  EXPECT_HAS(problem("just text\n"), "expected lines of `key: value`");
  EXPECT_HAS(problem("a: [1\nb: 2\n"), "not valid YAML");
  EXPECT_HAS(problem("[a, b]: 1\n"), "a key must be a name");
  EXPECT_HAS(problem(""), "model_name_or_path is missing");
  EXPECT_HAS(problem("# only a comment\n"), "output_dir is missing");
  EXPECT_HAS(problem("\xff\xfe: \xc3\n"), "r.yaml");
}

// The shape of the pre-training examples that LLaMA-Factory users share.
TEST(Recipe, AFamiliarPretrainRecipeLoads) {
  const Recipe r = recipe_from_text(
      "### model\nmodel_name_or_path: models/small\ntrust_remote_code: true\n\n### method\nstage: "
      "pt\ndo_train: true\n"
      "finetuning_type: full\n# deepspeed: ds_z0.json\n\n### dataset\ndataset: data/a.jsonl,data/b.jsonl\n"
      "cutoff_len: 1024\nmax_samples: 1000\noverwrite_cache: true\npreprocessing_num_workers: 16\n"
      "dataloader_num_workers: 4\n\n### output\noutput_dir: saves/small/pretrain\nlogging_steps: "
      "10\nsave_steps: 500\n"
      "plot_loss: true\noverwrite_output_dir: true\nsave_only_model: false\nreport_to: none  # or "
      "tensorboard\n\n"
      "### train\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 8\nlearning_rate: 1.0e-4\n"
      "num_train_epochs: 3.0\nlr_scheduler_type: cosine\nwarmup_ratio: 0.1\nbf16: true\nddp_timeout: "
      "180000000\n"
      "resume_from_checkpoint: null\n\n### eval\nval_size: 0.1\nper_device_eval_batch_size: "
      "1\neval_strategy: steps\n"
      "eval_steps: 500\n",
      "pretrain.yaml");
  EXPECT_EQ(r.dataset.size(), 2u);
  EXPECT_EQ(r.bf16, true);
  EXPECT_EQ(r.max_samples, 1000);
  EXPECT_TRUE(r.report_to.empty());
  EXPECT_EQ(r.eval_strategy, Recipe::When::steps);
  EXPECT_EQ(r.warmup_ratio, 0.1);
}

TEST(Recipe, MissingFilesAreListedTogether) {
  FileSystem& files = real_files();
  Recipe r = read("", {"dataset=[/no/a.txt, '/no/*.txt']", "eval_dataset=/no/e.txt",
                       "model_name_or_path=./none/here", "tokenizer_name_or_path=owner/name"});
  try {
    require_recipe_files(files, r);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::data);
    const std::string text = e.what();
    EXPECT_HAS(text, "dataset: /no/a.txt");
    EXPECT_HAS(text, "eval_dataset: /no/e.txt");
    EXPECT_HAS(text, "model_name_or_path: ./none/here");
    EXPECT_FALSE(contains(text, "*"));
    EXPECT_FALSE(contains(text, "owner/name"));
  }
  try {
    load_recipe(files, "/no/recipe.yaml");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::data);
  }
}

}  // namespace
}  // namespace lode
