// A training recipe: what a run was asked to do, read from a flat YAML file and `key=value` overrides. Every
// key is declared once in keys.cc; the fields below are already checked against their ranges, choices and
// each other.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "train/recipe_activation.h"
#include "train/recipe_optimizer.h"

namespace lode {

struct Recipe : OptimizerRecipe, ActivationRecipe {
  enum class Packing { best_fit, blocks };  // isolated samples in bins, or the token stream cut into rows
  enum class TooLong { truncate, split, drop };  // documents longer than cutoff_len
  enum class BadRecord { fail, skip };           // a record that cannot be read
  enum class When { no, steps, epoch };          // evaluation and saving
  enum class Scheduler {
    linear,
    cosine,
    constant,
    constant_with_warmup,
    warmup_stable_decay,
    cosine_with_min_lr
  };
  enum class DecayShape { linear, cosine, one_minus_sqrt };  // last phase of warmup_stable_decay

  struct EvalSet {
    std::string name;                // "eval" for a plain list
    std::vector<std::string> paths;  // as written; see data_paths()
    friend bool operator==(const EvalSet&, const EvalSet&) = default;
  };

  // Model. An empty tokenizer_name_or_path means the model's folder.
  std::string model_name_or_path;
  bool train_from_scratch = false;  // model_name_or_path is a config.json or a folder with one
  std::string tokenizer_name_or_path;
  enum class Stage { pt, sft };
  enum class Tuning { full, freeze, lora };
  enum class Mixing { concat, interleave_under, interleave_over };
  Stage stage = Stage::pt;
  Tuning finetuning_type = Tuning::full;

  // Fine-tuning
  std::string adapter_name_or_path;              // a PEFT folder to go on with; finetuning_type lora
  std::optional<std::int64_t> quantization_bit;  // 4 or 8: of the frozen base
  enum class FrozenCompute { automatic, bf16, int8 };
  FrozenCompute frozen_compute = FrozenCompute::automatic;  // products with frozen weights
  std::int64_t lora_rank = 8;
  std::optional<double> lora_alpha;  // unset: 2 * lora_rank
  double lora_dropout = 0;
  std::vector<std::string> lora_target = {"all"};
  std::vector<std::string> additional_target;  // modules that are trained whole beside the adapter
  bool use_rslora = false;
  std::string memory_limit = "auto";         // of the process; see train/memory_plan.h
  std::int64_t freeze_trainable_layers = 2;  // the last ones; negative: the first ones
  std::vector<std::string> freeze_trainable_modules = {"all"};
  std::vector<std::string> freeze_extra_modules;
  std::optional<double> neftune_noise_alpha;
  std::vector<std::string> add_tokens, add_special_tokens;
  std::optional<bool> resize_vocab;  // unset: true when tokens are added

  // Chat data (stage sft)
  std::string chat_template;  // the key `template`
  std::string default_system;
  bool train_on_prompt = false, mask_history = false;
  std::optional<bool> enable_thinking;  // handed to the template
  Mixing mix_strategy = Mixing::concat;
  std::vector<double> interleave_probs;

  // Data. Entries are files, folders or globs as written; data_paths() puts dataset_dir before relative ones.
  std::vector<std::string> dataset;
  std::vector<EvalSet> eval_dataset;
  std::string dataset_dir;
  double val_size = 0;  // below 1: share of the documents; from 1: number of documents
  std::int64_t cutoff_len = 2048;
  bool packing = true;
  Packing packing_strategy = Packing::best_fit;
  TooLong truncation_strategy = TooLong::truncate;
  std::string document_separator =
      "auto";  // "auto", "file", "record", or the text between two documents of a text file
  std::string text_column = "text";
  BadRecord bad_record = BadRecord::fail;
  bool streaming = false;                      // dataset is read as it is trained on, never prepared
  std::optional<std::int64_t> max_samples;     // documents per data set
  std::int64_t preprocessing_num_workers = 0;  // 0: num_threads

  // Step. With packing a batch counts rows of cutoff_len tokens, without it samples.
  static constexpr std::int64_t kAutoBatch = 0;  // until train/batch_size.h has chosen
  std::int64_t per_device_train_batch_size = 8;
  std::int64_t per_device_eval_batch_size = 8;
  std::int64_t gradient_accumulation_steps = 1;
  std::optional<std::int64_t> global_batch_size;  // their product, when given
  double num_train_epochs = 3;
  std::int64_t max_steps = -1;  // above 0: wins over num_train_epochs
  bool fp16 = false;
  double fp16_initial_scale = 65536;
  std::int64_t fp16_growth_interval = 2000;
  bool pure_bf16 = false;
  enum class Rounding { stochastic, kahan } pure_bf16_rounding = Rounding::stochastic;
  std::optional<bool> bf16;  // unset: bf16 where the CPU has fast bf16 products
  std::int64_t seed = 42;
  std::optional<std::int64_t> data_seed;  // unset: seed
  bool disable_shuffling = false;         // rows in the order of the data, in every epoch
  std::int64_t num_threads = 0;           // 0: every core available to the process
  std::int64_t max_bad_steps = 3;  // consecutive steps with a non-finite loss or gradient before giving up
  bool strict = false;             // a substitution is an error before the first step

  // Optimizer, beside OptimizerRecipe
  double learning_rate = 5e-5;
  double weight_decay = 0;
  double adam_beta1 = 0.9, adam_beta2 = 0.999, adam_epsilon = 1e-8;
  double max_grad_norm = 1;  // 0: no clipping
  Scheduler lr_scheduler_type = Scheduler::linear;
  double warmup_ratio = 0;
  std::int64_t warmup_steps = 0;  // at most one of the two is above 0
  // lr_scheduler_kwargs
  std::optional<double> min_lr, min_lr_ratio;   // at most one is set
  std::optional<std::int64_t> num_decay_steps;  // required by warmup_stable_decay
  DecayShape decay_type = DecayShape::linear;
  double num_cycles = 0.5;

  // Evaluation
  When eval_strategy = When::no;
  std::int64_t eval_steps = 500;
  bool load_best_model_at_end = false;
  std::string metric_for_best_model =
      "loss";                      // loss, perplexity, bits_per_byte or accuracy; "SET_loss" picks a set
  bool greater_is_better = false;  // true by itself for accuracy
  std::int64_t early_stopping_patience = 0;   // evaluations without improvement; 0: off
  std::vector<std::string> generate_prompts;  // continued at each evaluation
  std::int64_t generate_max_new_tokens = 64;

  // Output
  std::string output_dir;
  bool overwrite_output_dir = false;
  std::string
      resume_from_checkpoint;  // "": no; "latest": newest verified one in output_dir, if any; else a folder
  std::string run_name;        // "": the last part of output_dir
  std::int64_t logging_steps = 10;
  std::string logging_dir;                               // "": output_dir
  std::vector<std::string> report_to = {"tensorboard"};  // empty: none
  bool disable_tqdm = false;
  std::int64_t profile_first = 0, profile_last = 0;  // steps whose ops are written to trace.json; 0: none
  When save_strategy = When::steps;
  std::int64_t save_steps = 500;
  std::int64_t save_total_limit = 0;  // 0: keep all
  bool save_only_model = false;

  // How it was read; not part of the recipe's values.
  std::string source_file;  // "": command line only
  std::vector<std::string>
      notices;  // to be said once at start: canonical names, differing defaults, keys without effect

  // document_separator as the readers take it: the text between documents, "" for whole files.
  std::string separator_text() const;
  bool has_evaluation_data() const { return val_size > 0 || !eval_dataset.empty(); }
  std::vector<std::string> data_paths(std::span<const std::string> entries) const;

  Json to_json() const;         // every key with its value, in the order of the reference page
  std::string to_yaml() const;  // the resolved recipe; load_recipe() of it gives the same values
};

// Reads `path` and applies overrides ("learning_rate=1e-4", "dataset=[a.txt, b.txt]"). Throws one
// Error(usage) listing every problem with file and line (or the override), or Error(data) when the file
// cannot be read.
Recipe load_recipe(FileSystem& files, const std::string& path, std::span<const std::string> overrides = {});
Recipe recipe_from_text(const std::string& yaml, const std::string& name,
                        std::span<const std::string> overrides = {});
Recipe recipe_from_overrides(std::span<const std::string> overrides);
// A command line's arguments: a recipe's path first, unless that is a key=value already, then overrides.
Recipe recipe_from_arguments(FileSystem& files, std::span<const std::string> arguments);

// Throws Error(data) listing every file that the recipe names and that is not there. Globs, and a model name
// that looks like a hub id (one slash, not a path), are left to their readers.
void require_recipe_files(FileSystem& files, const Recipe& recipe);

std::string unescape(std::string_view text);  // \n, \t, \r and \\ as typed on a command line; others stay

Json recipe_schema();  // JSON Schema (draft 2020-12)
std::vector<std::string> recipe_groups();
std::string recipe_help(
    const std::optional<std::string>& group = {});  // throws Error(usage) on an unknown group
std::string recipe_reference_markdown();

}  // namespace lode
