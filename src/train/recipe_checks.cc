#include "train/recipe_checks.h"

#include <algorithm>

#include "core/fail.h"
#include "text/builtin_templates.h"

namespace lode {
namespace {

class Checker {
 public:
  Checker(const Recipe& recipe, RecipeReading& reading) : recipe_(recipe), reading_(reading) {}

  void required() {
    for (const Key& key : recipe_keys()) {
      if (!key.required || reading_.failed.contains(key.name)) continue;
      const bool empty = json_as_text(key.get(recipe_)).empty();
      if (empty) problem("{} is missing: {}", key.name, key.doc);
    }
  }

  void precision() {
    const auto contradict = [&](const char* one, const char* other) {
      problem("{} ({}) and {} ({}) contradict each other; keep one", one, where(one), other, where(other));
    };
    if (recipe_.fp16 && recipe_.bf16 == true) contradict("bf16", "fp16");
    if (recipe_.fp16 && recipe_.pure_bf16) contradict("pure_bf16", "fp16");
    // An overflow is known when parameters have changed already.
    if (recipe_.fp16 && recipe_.optim_in_backward) contradict("optim_in_backward", "fp16");
    if (recipe_.fp16) return;
    const auto alone = [&](const char* key) {
      problem("{} ({}) means nothing without fp16: true", key, where(key));
    };
    const Recipe defaults;
    if (recipe_.fp16_initial_scale != defaults.fp16_initial_scale) alone("fp16_initial_scale");
    if (recipe_.fp16_growth_interval != defaults.fp16_growth_interval) alone("fp16_growth_interval");
  }

  void data() {
    if (recipe_.val_size > 0 && !recipe_.eval_dataset.empty()) {
      problem("val_size ({}) and eval_dataset ({}) contradict each other; keep one", where("val_size"),
              where("eval_dataset"));
    }
    if (!recipe_.packing && is_set("packing_strategy")) {
      problem("packing: false ({}) and packing_strategy ({}) contradict each other; remove one",
              where("packing"), where("packing_strategy"));
    }
    const bool blocks = recipe_.packing && recipe_.packing_strategy == Recipe::Packing::blocks;
    if (blocks && is_set("truncation_strategy")) {
      problem(
          "packing_strategy: blocks ({}) and truncation_strategy ({}) contradict each other: blocks never "
          "truncate",
          where("packing_strategy"), where("truncation_strategy"));
    }
    if (recipe_.val_size > 1 &&
        recipe_.val_size != static_cast<double>(static_cast<std::int64_t>(recipe_.val_size))) {
      problem("val_size ({}): expected a share below 1 or a whole number of documents, found {}",
              where("val_size"), recipe_.val_size);
    }
  }

  void streaming() {
    if (!recipe_.streaming) return;
    const std::string at = format("streaming ({})", where("streaming"));
    if (recipe_.max_steps <= 0 && !reading_.failed.contains("max_steps")) {
      problem("{} needs max_steps ({}) above 0: the length of an epoch is not known", at, where("max_steps"));
    }
    const bool blocks = recipe_.packing && recipe_.packing_strategy == Recipe::Packing::blocks;
    if (!blocks && !reading_.failed.contains("packing_strategy") && !reading_.failed.contains("packing")) {
      problem("{} needs packing_strategy: blocks ({})", at,
              where(recipe_.packing ? "packing_strategy" : "packing"));
    }
    if (recipe_.val_size > 0) {
      problem("{} and val_size ({}) contradict each other: name an eval_dataset", at, where("val_size"));
    }
    for (const auto& [key, when] :
         {std::pair{"eval_strategy", recipe_.eval_strategy}, {"save_strategy", recipe_.save_strategy}}) {
      if (when == Recipe::When::epoch) {
        problem("{} and {}: epoch ({}) contradict each other: choose steps", at, key, where(key));
      }
    }
  }

  void tuning() {
    using T = Recipe::Tuning;
    const T type = recipe_.finetuning_type;
    for (const char* key : {"adapter_name_or_path", "lora_rank", "lora_alpha", "lora_dropout", "lora_target",
                            "additional_target", "use_rslora"}) {
      belongs(key, type == T::lora, "finetuning_type: lora");
    }
    for (const char* key : {"freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules"}) {
      belongs(key, type == T::freeze, "finetuning_type: freeze");
    }
    if (recipe_.quantization_bit && type != T::lora) {
      problem("quantization_bit ({}) needs finetuning_type: lora: quantised weights cannot be trained",
              where("quantization_bit"));
    }
    if (recipe_.frozen_compute != Recipe::FrozenCompute::automatic && type == T::full) {
      problem("frozen_compute ({}) needs finetuning_type: lora or freeze: in full training nothing is frozen",
              where("frozen_compute"));
    }
    if (recipe_.train_from_scratch && type != T::full) {
      problem(
          "train_from_scratch ({}) and finetuning_type ({}) contradict each other: there is nothing to tune",
          where("train_from_scratch"), where("finetuning_type"));
    }
  }

  void chat() {
    const bool sft = recipe_.stage == Recipe::Stage::sft;
    for (const char* key : {"default_system", "train_on_prompt", "mask_history", "enable_thinking"}) {
      belongs(key, sft, "stage: sft");
    }
    if (!recipe_.chat_template.empty()) {
      try {
        find_builtin_template(recipe_.chat_template);
      } catch (const Error& error) {
        problem("{}: {}", where("template"), error.what());
      }
    }
    if (recipe_.train_on_prompt && recipe_.mask_history) {
      problem("train_on_prompt ({}) and mask_history ({}) contradict each other; keep one",
              where("train_on_prompt"), where("mask_history"));
    }
    if (sft && recipe_.streaming) {
      problem("streaming ({}) is not supported yet with stage: sft", where("streaming"));
    }
    if (sft && recipe_.packing && recipe_.packing_strategy == Recipe::Packing::blocks) {
      problem("packing_strategy: blocks ({}) would cut chats apart: use best_fit with stage: sft",
              where("packing_strategy"));
    }
    if (sft && recipe_.truncation_strategy == Recipe::TooLong::split) {
      problem("truncation_strategy: split ({}) would cut chats apart: use truncate or drop with stage: sft",
              where("truncation_strategy"));
    }
    const bool interleaves = recipe_.mix_strategy != Recipe::Mixing::concat;
    if (!recipe_.interleave_probs.empty()) {
      if (!interleaves) {
        problem("interleave_probs ({}) needs mix_strategy: interleave_under or interleave_over",
                where("interleave_probs"));
      } else if (recipe_.interleave_probs.size() != recipe_.dataset.size()) {
        problem("interleave_probs ({}) has {} numbers for {} data sets", where("interleave_probs"),
                recipe_.interleave_probs.size(), recipe_.dataset.size());
      }
    }
    if (interleaves && recipe_.streaming) {
      problem("mix_strategy ({}) and streaming ({}) contradict each other", where("mix_strategy"),
              where("streaming"));
    }
  }

  void schedule() {
    using S = Recipe::Scheduler;
    const S type = recipe_.lr_scheduler_type;
    if (recipe_.warmup_ratio > 0 && recipe_.warmup_steps > 0) {
      problem("warmup_ratio ({}) and warmup_steps ({}) contradict each other; keep one",
              where("warmup_ratio"), where("warmup_steps"));
    }
    if (recipe_.min_lr && recipe_.min_lr_ratio) {
      problem(
          "lr_scheduler_kwargs.min_lr ({}) and lr_scheduler_kwargs.min_lr_ratio ({}) contradict each other; "
          "keep one",
          where("lr_scheduler_kwargs.min_lr"), where("lr_scheduler_kwargs.min_lr_ratio"));
    }
    if (recipe_.min_lr && *recipe_.min_lr > recipe_.learning_rate) {
      problem("lr_scheduler_kwargs.min_lr ({}) is above learning_rate ({})", *recipe_.min_lr,
              recipe_.learning_rate);
    }
    const bool wsd = type == S::warmup_stable_decay;
    const bool floor = type == S::cosine_with_min_lr;
    applies("min_lr", floor || wsd);
    applies("min_lr_ratio", floor || wsd);
    applies("num_decay_steps", wsd);
    applies("decay_type", wsd);
    applies("num_cycles", floor || type == S::cosine);
    if (wsd && !recipe_.num_decay_steps && !reading_.failed.contains("lr_scheduler_kwargs.num_decay_steps")) {
      problem("lr_scheduler_type: warmup_stable_decay ({}) needs lr_scheduler_kwargs.num_decay_steps",
              where("lr_scheduler_type"));
    }
    if (floor && !recipe_.min_lr && !recipe_.min_lr_ratio) {
      problem("lr_scheduler_type: cosine_with_min_lr ({}) needs lr_scheduler_kwargs.min_lr or min_lr_ratio",
              where("lr_scheduler_type"));
    }
    if (recipe_.lr_scheduler_type == S::constant && (recipe_.warmup_ratio > 0 || recipe_.warmup_steps > 0)) {
      const std::string warmup = recipe_.warmup_ratio > 0 ? "warmup_ratio" : "warmup_steps";
      problem(
          "lr_scheduler_type: constant ({}) and {} ({}) contradict each other; constant_with_warmup warms up",
          where("lr_scheduler_type"), warmup, where(warmup));
    }
  }

  void evaluation() {
    const bool evaluates = recipe_.eval_strategy != Recipe::When::no;
    const bool data_refused =
        reading_.failed.contains("val_size") || reading_.failed.contains("eval_dataset");
    if (evaluates && !recipe_.has_evaluation_data() && !data_refused) {
      problem("eval_strategy ({}) needs val_size or eval_dataset", where("eval_strategy"));
    }
    if (!evaluates && recipe_.load_best_model_at_end) {
      problem("load_best_model_at_end ({}) needs evaluation, but eval_strategy is no",
              where("load_best_model_at_end"));
    }
    if (!evaluates && recipe_.early_stopping_patience > 0) {
      problem("early_stopping_patience ({}) needs evaluation, but eval_strategy is no",
              where("early_stopping_patience"));
    }
    if (!evaluates && !recipe_.generate_prompts.empty()) {
      problem("generate_prompts ({}) needs evaluation, but eval_strategy is no", where("generate_prompts"));
    }
    if (evaluates && recipe_.load_best_model_at_end) best_model();
  }

 private:
  void best_model() {
    if (recipe_.save_strategy != recipe_.eval_strategy) {
      problem("load_best_model_at_end ({}) needs the same save_strategy ({}) and eval_strategy ({})",
              where("load_best_model_at_end"), where("save_strategy"), where("eval_strategy"));
    } else if (recipe_.eval_strategy == Recipe::When::steps && recipe_.save_steps % recipe_.eval_steps != 0) {
      problem("load_best_model_at_end ({}) needs save_steps ({}) to be a multiple of eval_steps ({})",
              where("load_best_model_at_end"), recipe_.save_steps, recipe_.eval_steps);
    }
  }

  // An option that was given a value of its own but has no meaning without `needs`.
  void belongs(const std::string& key, bool meant, const std::string& needs) {
    if (meant || !is_set(key)) return;
    for (const Key& known : recipe_keys()) {
      if (known.name == key && known.get(recipe_) == known.get(Recipe())) return;
    }
    problem("{} ({}) means nothing without {}", key, where(key), needs);
  }

  void applies(const std::string& option, bool meant) {
    const std::string key = "lr_scheduler_kwargs." + option;
    if (meant || !is_set(key) || reading_.failed.contains("lr_scheduler_type")) return;
    problem("{} ({}) means nothing with this lr_scheduler_type ({})", key, where(key),
            where("lr_scheduler_type"));
  }

  bool is_set(const std::string& key) const { return reading_.set.contains(key); }
  std::string where(const std::string& key) const {
    const auto found = reading_.set.find(key);
    return found == reading_.set.end() ? "default" : found->second;
  }
  template <class... Args>
  void problem(std::string_view pattern, const Args&... args) {
    reading_.problems.push_back(format(pattern, args...));
  }

  const Recipe& recipe_;
  RecipeReading& reading_;
};

// Hugging Face writes eval_loss or eval_SET_loss; here it is loss or SET_loss. False when no set has such a
// metric.
bool resolve_metric(Recipe& recipe) {
  std::vector<std::string> valid;
  for (const std::string metric : {"loss", "perplexity", "bits_per_byte", "accuracy"}) {
    valid.push_back(metric);
    for (const Recipe::EvalSet& set : recipe.eval_dataset) valid.push_back(set.name + "_" + metric);
  }
  std::string& metric = recipe.metric_for_best_model;
  if (std::ranges::find(valid, metric) != valid.end()) return true;
  if (!metric.starts_with("eval_")) return false;
  metric.erase(0, 5);
  return std::ranges::find(valid, metric) != valid.end();
}

void add_notices(Recipe& recipe) {
  const bool isolated = recipe.packing && recipe.packing_strategy == Recipe::Packing::best_fit;
  if (recipe.packing) {
    recipe.notices.push_back(format("per_device_train_batch_size counts rows of {} packed tokens{}",
                                    recipe.cutoff_len,
                                    isolated ? "; documents in a row never see each other" : ""));
  }
  if (recipe.has_evaluation_data() && recipe.eval_strategy == Recipe::When::no) {
    recipe.notices.push_back("there is evaluation data, but eval_strategy is no: nothing will be evaluated");
  }
  if (!recipe.resume_from_checkpoint.empty() && recipe.overwrite_output_dir) {
    recipe.notices.push_back("overwrite_output_dir is ignored, since resume_from_checkpoint asks to go on");
    recipe.overwrite_output_dir = false;
  }
}

}  // namespace

void check_recipe(Recipe& recipe, RecipeReading& reading) {
  const std::string metric = recipe.metric_for_best_model;
  if (!resolve_metric(recipe) && !reading.failed.contains("eval_dataset")) {
    reading.problems.push_back(format(
        "metric_for_best_model: expected loss, perplexity, bits_per_byte or accuracy, or one of them after "
        "the name of an evaluation set (NAME_loss), found {}",
        metric));
  }
  if (!reading.set.contains("greater_is_better")) recipe.greater_is_better = metric.ends_with("accuracy");
  Checker checker(recipe, reading);
  checker.required();
  checker.precision();
  checker.data();
  checker.streaming();
  checker.tuning();
  checker.chat();
  check_activations(recipe, reading);
  check_batch(recipe, reading);
  check_optimizer(recipe, reading);
  checker.schedule();
  checker.evaluation();
  add_notices(recipe);
}

}  // namespace lode
