// The table of keys and what is made from it.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "core/json.h"
#include "lode/error.h"
#include "train/keys.h"
#include "train/recipe.h"

namespace lode {
namespace {

const std::string kMinimal = "model_name_or_path: m\ndataset: a.txt\noutput_dir: out\n";

// A value that is not the default, and the other keys that it needs.
struct Sample {
  std::string key, value, with;
};

const std::vector<Sample> kSamples = {
    {"model_name_or_path", "x", "dataset: a\noutput_dir: o\n"},
    {"train_from_scratch", "true", ""},
    {"tokenizer_name_or_path", "tok", ""},
    {"stage", "sft", ""},
    {"finetuning_type", "freeze", ""},
    {"adapter_name_or_path", "a", "finetuning_type: lora\n"},
    {"lora_rank", "4", "finetuning_type: lora\n"},
    {"lora_alpha", "4", "finetuning_type: lora\n"},
    {"lora_dropout", "0.1", "finetuning_type: lora\n"},
    {"lora_target", "[q_proj, v_proj]", "finetuning_type: lora\n"},
    {"additional_target", "[lm_head]", "finetuning_type: lora\n"},
    {"use_rslora", "true", "finetuning_type: lora\n"},
    {"quantization_bit", "8", "finetuning_type: lora\n"},
    {"frozen_compute", "int8", "finetuning_type: lora\n"},
    {"freeze_trainable_layers", "-1", "finetuning_type: freeze\n"},
    {"freeze_trainable_modules", "[mlp]", "finetuning_type: freeze\n"},
    {"freeze_extra_modules", "[lm_head]", "finetuning_type: freeze\n"},
    {"neftune_noise_alpha", "5", ""},
    {"add_tokens", "[x]", ""},
    {"add_special_tokens", "[<x>]", ""},
    {"resize_vocab", "false", ""},
    {"template", "chatml", ""},
    {"default_system", "Be kind.", "stage: sft\n"},
    {"train_on_prompt", "true", "stage: sft\n"},
    {"mask_history", "true", "stage: sft\n"},
    {"enable_thinking", "false", "stage: sft\n"},
    {"mix_strategy", "interleave_over", ""},
    {"interleave_probs", "[0.25]", "mix_strategy: interleave_over\n"},
    {"dataset", "[p, q]", "model_name_or_path: m\noutput_dir: o\n"},
    {"eval_dataset", "{one: p, two: [q, r]}", ""},
    {"dataset_dir", "d", ""},
    {"val_size", "0.2", ""},
    {"cutoff_len", "77", ""},
    {"packing", "false", ""},
    {"packing_strategy", "blocks", ""},
    {"truncation_strategy", "split", ""},
    {"document_separator", "\"<x>\\n\"", ""},
    {"text_column", "body", ""},
    {"bad_record", "skip", ""},
    {"max_samples", "3", ""},
    {"preprocessing_num_workers", "2", ""},
    {"per_device_train_batch_size", "3", ""},
    {"per_device_eval_batch_size", "3", ""},
    {"gradient_accumulation_steps", "3", ""},
    {"global_batch_size", "16", ""},
    {"num_train_epochs", "1.5", ""},
    {"max_steps", "9", ""},
    {"bf16", "true", ""},
    {"fp16", "true", ""},
    {"fp16_initial_scale", "1024", "fp16: true\n"},
    {"fp16_growth_interval", "100", "fp16: true\n"},
    {"pure_bf16", "true", ""},
    {"pure_bf16_rounding", "kahan", "pure_bf16: true\n"},
    {"seed", "7", ""},
    {"data_seed", "7", ""},
    {"disable_shuffling", "true", ""},
    {"num_threads", "1", ""},
    {"max_bad_steps", "5", ""},
    {"strict", "true", ""},
    {"activation_policy", "auto", "activation_memory: 2GiB\n"},
    {"gradient_checkpointing", "true", ""},
    {"activation_offloading", "true", ""},
    {"activation_memory", "1.5GiB", "activation_policy: auto\n"},
    {"recompute", "selective", ""},
    {"recompute_interval", "3", "recompute: every_k\n"},
    {"recompute_modules", "[attention]", "recompute: selective\n"},
    {"offload_dir", "d", "activation_policy: offload\n"},
    {"checkpoint.double_buffer", "false", "activation_policy: offload\n"},
    {"checkpoint.synchronous", "true", "activation_policy: offload\n"},
    {"metadata_cache", "false", ""},
    {"graph", "captured", ""},
    {"optim", "adamw_bnb_8bit", ""},
    {"optim_args", "\"momentum=0.9, nesterov=true\"", "optim: sgd\n"},
    {"optim_target_modules", "[q_proj]", "optim: galore_adamw\n"},
    {"optim_in_backward", "true", "max_grad_norm: 0\n"},
    {"optim_offload_dir", "/scratch", ""},
    {"use_adam_mini", "true", ""},
    {"use_muon", "true", ""},
    {"use_galore", "true", "optim: paged_adamw_8bit\n"},
    {"galore_target", "[q_proj, mlp.up_proj]", "use_galore: true\n"},
    {"galore_rank", "8", "use_galore: true\n"},
    {"galore_update_interval", "50", "use_galore: true\n"},
    {"galore_scale", "0.25", "use_galore: true\n"},
    {"galore_proj_type", "reverse_std", "use_galore: true\n"},
    {"use_apollo", "true", ""},
    {"apollo_target", "[q_proj]", "use_apollo: true\n"},
    {"apollo_rank", "1", "use_apollo: true\n"},
    {"apollo_update_interval", "50", "use_apollo: true\n"},
    {"apollo_scale", "128", "use_apollo: true\n"},
    {"apollo_proj", "random", "use_apollo: true\n"},
    {"apollo_proj_type", "left", "use_apollo: true\n"},
    {"apollo_scale_type", "tensor", "use_apollo: true\n"},
    {"apollo_scale_front", "true", "use_apollo: true\n"},
    {"use_badam", "true", ""},
    {"badam_mode", "layer", "use_badam: true\n"},
    {"badam_start_block", "3", "use_badam: true\n"},
    {"badam_switch_mode", "random", "use_badam: true\n"},
    {"badam_switch_interval", "10", "use_badam: true\n"},
    {"memory_limit", "6GiB", ""},
    {"learning_rate", "1e-3", ""},
    {"weight_decay", "0.1", ""},
    {"adam_beta1", "0.8", ""},
    {"adam_beta2", "0.95", ""},
    {"adam_epsilon", "1e-6", ""},
    {"max_grad_norm", "0", ""},
    {"lr_scheduler_type", "cosine", ""},
    {"streaming", "true", "max_steps: 5\npacking_strategy: blocks\n"},
    {"warmup_ratio", "0.25", ""},
    {"warmup_steps", "4", ""},
    {"lr_scheduler_kwargs.min_lr", "1e-6", "lr_scheduler_type: cosine_with_min_lr\n"},
    {"lr_scheduler_kwargs.min_lr_ratio", "0.1", "lr_scheduler_type: cosine_with_min_lr\n"},
    {"lr_scheduler_kwargs.num_decay_steps", "5", "lr_scheduler_type: warmup_stable_decay\n"},
    {"lr_scheduler_kwargs.decay_type", "1-sqrt", "lr_scheduler_type: wsd\nlr_wsd_decay_iters: 5\n"},
    {"lr_scheduler_kwargs.num_cycles", "1.5", "lr_scheduler_type: cosine\n"},
    {"eval_strategy", "epoch", "val_size: 0.1\n"},
    {"eval_steps", "9", ""},
    {"load_best_model_at_end", "true", "val_size: 0.1\neval_strategy: epoch\nsave_strategy: epoch\n"},
    {"metric_for_best_model", "perplexity", ""},
    {"greater_is_better", "true", ""},
    {"early_stopping_patience", "2", "val_size: 3\neval_strategy: steps\n"},
    {"generate_prompts", "[\"In, the\", b]", "val_size: 3\neval_strategy: steps\n"},
    {"generate_max_new_tokens", "5", ""},
    {"output_dir", "o2", "model_name_or_path: m\ndataset: a\n"},
    {"overwrite_output_dir", "true", ""},
    {"resume_from_checkpoint", "true", ""},
    {"run_name", "\"5\"", ""},
    {"logging_steps", "1", ""},
    {"logging_dir", "logs", ""},
    {"report_to", "none", ""},
    {"disable_tqdm", "true", ""},
    {"profile_steps", "3-5", ""},
    {"save_strategy", "no", ""},
    {"save_steps", "11", ""},
    {"save_total_limit", "2", ""},
    {"save_only_model", "true", ""},
};

TEST(RecipeKeys, EveryKeyCanBeSetAndTheResolvedRecipeReadsBack) {
  std::set<std::string> tried;
  const std::set<std::string> single = {"stage", "finetuning_type", "apollo_proj",
                                        "badam_mode"};  // one value so far
  for (const Sample& sample : kSamples) {
    SCOPED_TRACE(sample.key);
    tried.insert(sample.key);
    const KeyMatch match = find_key(sample.key);
    ASSERT_NE(match.key, nullptr);
    const bool base = sample.with.find("output_dir") == std::string::npos && !match.key->required;
    const std::vector<std::string> overrides = {sample.key + "=" + sample.value};
    const Recipe r = recipe_from_text((base ? kMinimal : "") + sample.with, "r.yaml", overrides);
    if (!single.contains(sample.key)) {
      EXPECT_NE(match.key->get(r), match.key->get(Recipe{}));
    }
    const Recipe again = recipe_from_text(r.to_yaml(), "resolved.yaml");
    EXPECT_EQ(again.to_json(), r.to_json()) << r.to_yaml();
    EXPECT_EQ(again.to_yaml(), r.to_yaml());
  }
  for (const Key& key : recipe_keys()) {
    if (key.support == Key::Support::full) {
      EXPECT_TRUE(tried.contains(key.name)) << key.name << " has no sample";
    }
  }
}

std::string refusal(const std::string& lines) {
  try {
    recipe_from_text(kMinimal + lines, "r.yaml", {});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(RecipeKeys, SaversSayWhatTheyNeed) {
  const auto says = [](const std::string& lines, const std::string& part) {
    EXPECT_NE(refusal(lines).find(part), std::string::npos) << lines << "-> " << refusal(lines);
  };
  says("optim_in_backward: true\n", "set max_grad_norm: 0 (it is 1, default)");
  says("optim_in_backward: true\nmax_grad_norm: 0\ngradient_accumulation_steps: 2\n",
       "gradient_accumulation_steps: 2 (r.yaml:6) contradict");
  EXPECT_EQ(refusal("optim_in_backward: true\nmax_grad_norm: 0\n"), "");
  says("pure_bf16: true\nfinetuning_type: lora\n",
       "pure_bf16 (r.yaml:4) needs finetuning_type full or freeze");
  says("pure_bf16: true\nbf16: false\n", "pure_bf16 (r.yaml:4) and bf16: false (r.yaml:5) contradict");
  says("optim_offload_dir: x\nuse_badam: true\n", "optim_offload_dir (r.yaml:4) and use_badam (r.yaml:5)");
  says("fp16: true\npure_bf16: true\n", "pure_bf16 (r.yaml:5) and fp16 (r.yaml:4) contradict");
  says("fp16: true\noptim_in_backward: true\nmax_grad_norm: 0\n", "optim_in_backward (r.yaml:5) and fp16");
  says("fp16_growth_interval: 5\n", "means nothing without fp16: true");
  says("pure_bf16_rounding: kahan\n", "means nothing without pure_bf16: true");
}

TEST(RecipeKeys, OptimizersContradictEachOther) {
  const auto says = [](const std::string& lines, const std::string& part) {
    EXPECT_NE(refusal(lines).find(part), std::string::npos) << lines << "-> " << refusal(lines);
  };
  says("use_galore: true\nuse_muon: true\n", "use_galore (r.yaml:4) and use_muon (r.yaml:5) contradict");
  says("use_muon: true\noptim: sgd\n", "use_muon (r.yaml:4) and optim: sgd (r.yaml:5) contradict");
  says("use_galore: true\nfinetuning_type: lora\n", "needs finetuning_type full or freeze");
  says("optim: apollo_adamw\nfinetuning_type: lora\n", "needs finetuning_type full or freeze");
  says("galore_rank: 8\n", "galore_rank (r.yaml:4) means nothing without use_galore: true");
  says("optim_target_modules: [q_proj]\n", "means nothing without optim: galore_adamw");
  says("optim: sgd\noptim_args: momentun=0.9\n",
       "sgd has no option \"momentun\"; it has momentum, dampening");
  says("optim: sgd\noptim_args: nesterov=true\n", "nesterov needs a momentum");
  says("optim: muon\noptim_args: ns_steps=many\n", "ns_steps: expected a number, found \"many\"");
  says("optim: muon\noptim_args: adjust_lr_fn=x\n", "expected one of original, match_rms_adamw");
  says("optim_args: momentum=0.9\n", "adamw_torch has no option \"momentum\"; it has none");
  says("use_galore: true\ngalore_layerwise: true\n", "galore_layerwise");
  says("optim: lomo\n", "lomo");
  EXPECT_EQ(refusal("use_galore: true\noptim: adamw_8bit\n"), "");
  EXPECT_EQ(refusal("galore_rank: 16\ngalore_layerwise: false\n"), "") << "the default asks for nothing";
}

TEST(RecipeKeys, NamesAreUnique) {
  std::set<std::string> names;
  for (const Key& key : recipe_keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    for (const KeyAlias& alias : key.aliases) EXPECT_TRUE(names.insert(alias.name).second) << alias.name;
    if (key.support == Key::Support::full) {
      EXPECT_FALSE(key.doc.empty()) << key.name;
      EXPECT_FALSE(key.schema.is_null()) << key.name;
    }
    if (key.support == Key::Support::no_effect) {
      EXPECT_FALSE(key.no_effect_because.empty()) << key.name;
    }
  }
}

TEST(RecipeKeys, EveryAliasReachesItsKey) {
  for (const Key& key : recipe_keys()) {
    for (const KeyAlias& alias : key.aliases) {
      const KeyMatch match = find_key(alias.name);
      ASSERT_NE(match.key, nullptr) << alias.name;
      EXPECT_EQ(match.key->name, key.name) << alias.name;
      EXPECT_NE(match.alias, nullptr);
    }
  }
}

TEST(RecipeKeys, SchemaIsJsonAndKnowsEveryName) {
  const Json schema = parse_json(recipe_schema().dump(2), "schema");
  const Json& properties = schema.at("properties");
  for (const Key& key : recipe_keys()) {
    if (key.name.find('.') == std::string::npos) {
      EXPECT_NE(properties.find(key.name), nullptr) << key.name;
    }
    for (const KeyAlias& alias : key.aliases) {
      const std::string top = alias.name.substr(0, alias.name.find('.'));
      EXPECT_NE(properties.find(top), nullptr) << alias.name;
    }
  }
  EXPECT_EQ(properties.at("cutoff_len").at("default").as_int(), 2048);
  EXPECT_EQ(properties.at("cutoff_len").at("anyOf").as_array()[0].at("minimum").as_int(), 2);
  EXPECT_TRUE(properties.at("lr").at("deprecated").as_bool());
  EXPECT_NE(properties.at("lr_scheduler_kwargs").at("properties").find("min_lr"), nullptr);
  EXPECT_FALSE(schema.at("additionalProperties").as_bool());
  EXPECT_EQ(schema.at("allOf").size(), 3u);
}

TEST(RecipeKeys, HelpHasEveryKeyAndKnowsItsGroups) {
  const std::string all = recipe_help();
  for (const Key& key : recipe_keys()) {
    if (key.support == Key::Support::full) {
      EXPECT_NE(all.find("  " + key.name + "  <"), std::string::npos) << key.name;
    }
  }
  const std::string data = recipe_help("data");
  EXPECT_NE(data.find("cutoff_len"), std::string::npos);
  EXPECT_EQ(data.find("learning_rate"), std::string::npos);
  EXPECT_THROW(recipe_help("nothing"), Error);
}

TEST(RecipeKeys, TheReferencePageIsFresh) {
  std::ifstream file(std::string(LODE_TEST_DIR) + "/../docs/recipe-reference.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str() == recipe_reference_markdown())
      << "run `lode recipe reference > docs/recipe-reference.md` and commit the page";
}

}  // namespace
}  // namespace lode
