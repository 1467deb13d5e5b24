#include "train/keys.h"

#include <algorithm>
#include <charconv>

#include "core/fail.h"
#include "train/keys_build.h"
#include "train/memory_plan.h"

namespace lode {
namespace {

const std::string kGuides = "some guides";
const std::string kNested = "the training block";

void add_model_keys(KeyTable& t) {
  t.group("model");
  Key& model = t.text(
      "model_name_or_path", &Recipe::model_name_or_path,
      "The model: a folder in Hugging Face format, a config.json (with train_from_scratch), or a hub id "
      "that is in the local cache.");
  model.required = true;
  model.alias("model", kSwift).alias("base_model", kAxolotl).alias("model_name", kGuides);
  t.boolean("train_from_scratch", &Recipe::train_from_scratch,
            "Start from random weights; model_name_or_path then only has to give a config.json.");
  t.text("tokenizer_name_or_path", &Recipe::tokenizer_name_or_path,
         "Folder with tokenizer.json, or the file itself. Empty: the model's folder.")
      .alias("tokenizer_name", kHf)
      .alias("tokenizer_config", kAxolotl);
}

// Paths as a list; axolotl's entries are blocks with a path.
std::vector<std::string> read_paths(const YamlNode& node) {
  std::vector<std::string> paths;
  if (node.kind != YamlNode::Kind::list) {
    Recipe scratch;
    std::vector<Key> keys;
    KeyTable(keys).list("", &Recipe::dataset, "").set(scratch, node);
    return scratch.dataset;
  }
  for (const YamlNode& item : node.items) {
    if (item.kind != YamlNode::Kind::map) {
      paths.push_back(text_of(item));
      continue;
    }
    for (std::size_t i = 0; i < item.keys.size(); ++i) {
      if (item.keys[i] == "path") {
        paths.push_back(text_of(item.items[i]));
      } else if (item.keys[i] != "type" || item.items[i].text != "completion") {
        fail(ErrorKind::usage, "not supported yet by lode: {} of a data set (only path is read)",
             item.keys[i]);
      }
    }
  }
  return paths;
}

Json paths_schema() {
  return Json::object({{"type", Json::Array{"string", "array"}},
                       {"items", Json::object({{"type", Json::Array{"string", "object"}}})}});
}

Json text_array(const std::vector<std::string>& values) {
  return Json::Array(values.begin(), values.end());
}

void add_dataset_keys(KeyTable& t) {
  Key& dataset =
      t.custom("dataset", "list",
               "Training text: files, folders and globs (.txt, .md, .jsonl, .json; plain, .gz or .zst), as a "
               "YAML list or separated by commas.");
  dataset.required = true;
  dataset.alias("train_data", kGuides).alias("datasets", kAxolotl).alias("pretraining_dataset", kAxolotl);
  dataset.schema = paths_schema();
  dataset.set = [](Recipe& r, const YamlNode& node) { r.dataset = read_paths(node); };
  dataset.get = [](const Recipe& r) { return text_array(r.dataset); };

  Key& eval = t.custom(
      "eval_dataset", "list or names",
      "Evaluation text: like dataset, or a block of `name: path` for several sets that are measured one "
      "by one.");
  eval.takes_map = true;
  eval.alias("val_dataset", kSwift).alias("test_datasets", kAxolotl);
  eval.schema = paths_schema();
  eval.schema["type"].push_back("object");
  eval.set = [](Recipe& r, const YamlNode& node) {
    r.eval_dataset.clear();
    if (node.kind != YamlNode::Kind::map) {
      const std::vector<std::string> paths = read_paths(node);
      if (!paths.empty()) r.eval_dataset.push_back({"eval", paths});
      return;
    }
    for (std::size_t i = 0; i < node.keys.size(); ++i) {
      if (std::ranges::find(r.eval_dataset, node.keys[i], &Recipe::EvalSet::name) != r.eval_dataset.end()) {
        fail(ErrorKind::usage, "two sets have the name {}", node.keys[i]);
      }
      r.eval_dataset.push_back({node.keys[i], read_paths(node.items[i])});
    }
  };
  eval.get = [](const Recipe& r) -> Json {
    if (r.eval_dataset.empty()) return {};
    Json sets = Json::object();
    for (const Recipe::EvalSet& set : r.eval_dataset) sets[set.name] = text_array(set.paths);
    return sets;
  };

  t.text("dataset_dir", &Recipe::dataset_dir,
         "Folder that relative paths of dataset and eval_dataset start from. Empty: the working directory.");
  t.number("val_size", &Recipe::val_size, kAtLeast0,
           "Held-out part of dataset: below 1 a share of its documents, from 1 on their number.")
      .alias("split_dataset_ratio", kSwift)
      .alias("val_set_size", kAxolotl);
}

void add_data_keys(KeyTable& t) {
  t.group("data");
  add_dataset_keys(t);
  t.integer("cutoff_len", &Recipe::cutoff_len, {.min = 2, .max = 1 << 20}, "Longest sample, in tokens.")
      .alias("max_length", kSwift)
      .alias("sequence_len", kAxolotl)
      .alias("seq_length", kMegatron)
      .alias("max_seq_length", kTrl)
      .alias("packing_length", kSwift)
      .other_default(kTrl, "1024")
      .other_default(kSwift, "the model's maximum");
  t.boolean("packing", &Recipe::packing,
            "Fill rows of cutoff_len tokens with whole documents. per_device_train_batch_size then counts "
            "such rows, "
            "without packing it counts samples; either way nothing is padded, so only the composition of a "
            "micro-batch "
            "differs.")
      .alias("sample_packing", kAxolotl)
      .alias("training.packed_sequence", kNested)
      .other_default(kSwift, "false")
      .other_default(kAxolotl, "false")
      .other_default(kTrl, "false");
  t.choice<Recipe::Packing>(
       "packing_strategy", &Recipe::packing_strategy,
       {{Recipe::Packing::best_fit, "best_fit", {"bfd", "best-fit"}},
        {Recipe::Packing::blocks, "blocks", {"wrapped"}}},
       "best_fit puts whole documents together and keeps them from seeing each other; blocks cuts the "
       "stream of all documents into rows of cutoff_len.")
      .conditional = true;
  Key& too_long = t.choice<Recipe::TooLong>(
      "truncation_strategy", &Recipe::truncation_strategy,
      {{Recipe::TooLong::truncate, "truncate", {"right"}},
       {Recipe::TooLong::split, "split", {}},
       {Recipe::TooLong::drop, "drop", {"delete"}}},
      "What becomes of a document longer than cutoff_len: its head is kept, it is split into several "
      "samples, or it is left out. Each is counted.");
  too_long.conditional = true;
  too_long.alias("excess_length_strategy", kAxolotl)
      .other_default(kSwift, "delete")
      .other_default(kAxolotl, "drop");
  Key& separator =
      t.text("document_separator", &Recipe::document_separator,
             "What a document of a text file is: the file (file or auto), a line (record), or what lies "
             "between this text; \\n and \\t stand for line break and tab. JSON files have records.");
  separator.set = [set = separator.set](Recipe& recipe, const YamlNode& node) {
    set(recipe, node);
    // Quoted text has been through YAML's own escapes.
    if (node.plain) recipe.document_separator = unescape(recipe.document_separator);
  };
  t.text("text_column", &Recipe::text_column, "Field of a JSON record that holds the text.")
      .alias("dataset_text_field", kTrl);
  t.choice<Recipe::BadRecord>(
      "bad_record", &Recipe::bad_record,
      {{Recipe::BadRecord::fail, "fail", {}}, {Recipe::BadRecord::skip, "skip", {}}},
      "A record that cannot be read (broken JSON, not UTF-8) ends the run, or is skipped and counted.");
  t.boolean(
      "streaming", &Recipe::streaming,
      "Read, tokenise and cut dataset into blocks while training, in the order of the files and again "
      "from the first one at the end: nothing is prepared, cached or shuffled. Needs max_steps and "
      "packing_strategy: blocks; eval_dataset is prepared as ever. A resumed run is bit-identical; it "
      "first reads (but does not tokenise) the records of the file it stopped in, and it knows the data "
      "by paths, sizes and options, not by content.");
  t.integer("max_samples", &Recipe::max_samples, kAtLeast1, "Documents taken of each data set. Empty: all.");
  t.integer("preprocessing_num_workers", &Recipe::preprocessing_num_workers, {.min = 0, .max = 4096},
            "Threads that tokenise. 0: num_threads.")
      .alias("dataset_num_proc", kTrl);
}

void add_step_keys(KeyTable& t) {
  add_batch_keys(t);
  t.number("num_train_epochs", &Recipe::num_train_epochs, kAbove0, "Passes over the data; parts of one too.")
      .alias("num_epochs", kAxolotl)
      .other_default(kAxolotl, "1");
  t.integer("max_steps", &Recipe::max_steps, {.min = -1},
            "Optimizer steps; above 0 it wins over num_train_epochs.")
      .alias("train_iters", kMegatron);

  Key& bf16 = t.custom(
      "bf16", "true, false or auto",
      "Products in bf16 with f32 master weights and f32 accumulation. auto: where the CPU has fast bf16 "
      "products.");
  bf16.choices = {"auto", "true", "false"};
  bf16.alias("bf16.enabled", kGuides).other_default(kHf, "false");
  bf16.schema = Json::object({{"enum", Json::Array{true, false, "auto"}}});
  bf16.set = [](Recipe& r, const YamlNode& node) {
    r.bf16 = node.as_bool();
    if (!r.bf16 && !(node.is_scalar() && node.text == "auto")) fail_expected("true, false or auto", node);
  };
  bf16.get = [](const Recipe& r) -> Json { return r.bf16 ? Json(*r.bf16) : Json("auto"); };

  t.boolean("fp16", &Recipe::fp16,
            "fp16 training's dynamic loss scaling: steps whose scaled gradients overflow f16 are left out. "
            "Products and activations are f32 here, which is said; bf16 needs no scaling.")
      .alias("fp16.enabled", kGuides);
  t.number("fp16_initial_scale", &Recipe::fp16_initial_scale, kAtLeast1, "With fp16: the first loss scale.");
  t.integer("fp16_growth_interval", &Recipe::fp16_growth_interval, kAtLeast1,
            "With fp16: good steps in a row after which the scale doubles. An overflow halves it.");
  t.boolean("pure_bf16", &Recipe::pure_bf16,
            "Trained matrices in bf16 without f32 masters: 4 bytes a parameter less than bf16. Needs "
            "finetuning_type full or freeze.");
  using R = Recipe::Rounding;
  t.choice<R>("pure_bf16_rounding", &Recipe::pure_bf16_rounding,
              {{R::stochastic, "stochastic", {}}, {R::kahan, "kahan", {}}},
              "With pure_bf16: updated weights are rounded at random, right in the mean; or to nearest, with "
              "what is lost kept in a bf16 compensation, 2 bytes a parameter.");

  t.integer("seed", &Recipe::seed, kAtLeast0, "Seed of initialisation, order and noise.")
      .other_default(kMegatron, "1234");
  t.integer("data_seed", &Recipe::data_seed, kAtLeast0, "Seed of the data's order. Empty: seed.");
  t.boolean("disable_shuffling", &Recipe::disable_shuffling,
            "Train on the rows in the order of the data, the same in every epoch. With packing: false or "
            "packing_strategy: blocks that is the order of the documents.");
  t.integer("num_threads", &Recipe::num_threads, {.min = 0, .max = 4096},
            "Threads. 0: every core that the process may use.");
  Key& limit = t.text(
      "memory_limit", &Recipe::memory_limit,
      "The most memory that the process may take: a size (6GiB), a share of the machine's or the "
      "container's (80%), auto (what is free at the start) or none. A run that would need more ends before "
      "it starts, with exit code 4 and what makes it fit.");
  limit.set = [set = limit.set](Recipe& recipe, const YamlNode& node) {
    set(recipe, node);
    memory_limit_bytes(recipe.memory_limit);
  };
  t.integer("max_bad_steps", &Recipe::max_bad_steps, kAtLeast1,
            "Steps in a row with a loss or gradient that is not finite (their updates are skipped) before "
            "the run ends "
            "with exit code 5.");
  t.boolean("strict", &Recipe::strict,
            "Whatever would be substituted by something slower or different is an error.");
}

void add_optimizer_keys(KeyTable& t) {
  t.group("optimizer");
  add_optimizer_choice_keys(t);
  t.number("learning_rate", &Recipe::learning_rate, kAtLeast0, "Highest learning rate.")
      .alias("lr", kMegatron)
      .other_default(kSwift, "1e-5");
  t.number("weight_decay", &Recipe::weight_decay, kAtLeast0,
           "Decay of matrices; biases and norms are spared.")
      .other_default(kSwift, "0.1")
      .other_default(kMegatron, "0.01");
  t.number("adam_beta1", &Recipe::adam_beta1, kShare, "AdamW's first momentum.");
  t.number("adam_beta2", &Recipe::adam_beta2, kShare, "AdamW's second momentum.")
      .other_default(kSwift, "0.95");
  t.number("adam_epsilon", &Recipe::adam_epsilon, kAbove0, "AdamW's epsilon.").alias("adam_eps", kMegatron);
  t.number("max_grad_norm", &Recipe::max_grad_norm, kAtLeast0,
           "Global gradient norm is clipped to this. 0: not at all.")
      .alias("clip_grad", kMegatron)
      .alias("gradient_clipping", kGuides);
}

void add_schedule_keys(KeyTable& t) {
  using S = Recipe::Scheduler;
  t.choice<S>("lr_scheduler_type", &Recipe::lr_scheduler_type,
              {{S::linear, "linear", {}},
               {S::cosine, "cosine", {}},
               {S::constant, "constant", {}},
               {S::constant_with_warmup, "constant_with_warmup", {}},
               {S::warmup_stable_decay, "warmup_stable_decay", {"wsd", "WSD"}},
               {S::cosine_with_min_lr, "cosine_with_min_lr", {}}},
              "Course of the learning rate after warm-up.")
      .alias("lr_scheduler", kAxolotl)
      .alias("lr_decay_style", kMegatron)
      .other_default(kSwift, "cosine")
      .other_default(kAxolotl, "cosine");
  t.number("warmup_ratio", &Recipe::warmup_ratio, kShare, "Share of all steps that warm up.")
      .alias("lr_warmup_fraction", kMegatron);
  Key& steps = t.integer("warmup_steps", &Recipe::warmup_steps, kAtLeast0,
                         "Steps that warm up; a number between 0 and 1 is taken as warmup_ratio.");
  steps.alias("lr_warmup_iters", kMegatron);
  steps.schema["type"] = "number";
  steps.set = [set = steps.set](Recipe& r, const YamlNode& node) {
    const auto number = node.as_number();
    if (number && *number > 0 && *number < 1) {
      r.warmup_ratio = *number;
    } else {
      set(r, node);
    }
  };
  t.number("lr_scheduler_kwargs.min_lr", &Recipe::min_lr, kAtLeast0,
           "Learning rate at the end (cosine_with_min_lr, warmup_stable_decay).")
      .alias("min_lr", kMegatron);
  t.number("lr_scheduler_kwargs.min_lr_ratio", &Recipe::min_lr_ratio, {.min = 0, .max = 1},
           "The same as a share of learning_rate (cosine_with_min_lr, warmup_stable_decay).")
      .alias("lr_scheduler_kwargs.min_lr_rate", kHf)
      .alias("cosine_min_lr_ratio", kAxolotl);
  t.integer("lr_scheduler_kwargs.num_decay_steps", &Recipe::num_decay_steps, kAtLeast1,
            "Steps of the last phase (warmup_stable_decay).")
      .alias("lr_wsd_decay_iters", kMegatron);
  using D = Recipe::DecayShape;
  t.choice<D>("lr_scheduler_kwargs.decay_type", &Recipe::decay_type,
              {{D::linear, "linear", {}}, {D::cosine, "cosine", {}}, {D::one_minus_sqrt, "1-sqrt", {}}},
              "Shape of the last phase (warmup_stable_decay).");
  t.number("lr_scheduler_kwargs.num_cycles", &Recipe::num_cycles, kAbove0,
           "Cosine waves after warm-up (cosine, cosine_with_min_lr); 0.5 falls once to the end.");
}

const std::vector<Choice<Recipe::When>> kWhen = {{Recipe::When::no, "no", {"none", "false"}},
                                                 {Recipe::When::steps, "steps", {}},
                                                 {Recipe::When::epoch, "epoch", {}}};

void add_evaluation_keys(KeyTable& t) {
  t.group("evaluation");
  t.choice<Recipe::When>("eval_strategy", &Recipe::eval_strategy, kWhen,
                         "When to evaluate: never, every eval_steps steps, or after each epoch.")
      .alias("evaluation_strategy", "older Hugging Face versions");
  t.integer("eval_steps", &Recipe::eval_steps, kAtLeast1, "Steps between evaluations.")
      .alias("eval_interval", kMegatron);
  t.boolean("load_best_model_at_end", &Recipe::load_best_model_at_end,
            "Keep the best checkpoint by metric_for_best_model and end with its weights.");
  t.text("metric_for_best_model", &Recipe::metric_for_best_model,
         "loss, perplexity, bits_per_byte or accuracy; with several sets NAME_loss picks one, loss alone is "
         "the first set's.");
  t.boolean("greater_is_better", &Recipe::greater_is_better,
            "Whether a greater metric is better. Not given: true for accuracy, false for the others.");
  t.integer("early_stopping_patience", &Recipe::early_stopping_patience, kAtLeast0,
            "End after this many evaluations without improvement. 0: never.")
      .alias("early_stopping_steps", kLlamaFactory);
  t.list("generate_prompts", &Recipe::generate_prompts,
         "Texts that the model continues at each evaluation, shown and written to the log.", false);
  t.integer("generate_max_new_tokens", &Recipe::generate_max_new_tokens, {.min = 1, .max = 1 << 20},
            "Length of those continuations, in tokens.");
}

void add_resume_key(KeyTable& t) {
  Key& key = t.custom(
      "resume_from_checkpoint", "true, false or a folder",
      "true: go on from the newest verified checkpoint in output_dir, or begin if there is none; a folder: "
      "from that checkpoint.");
  key.alias("load", kMegatron);
  key.schema = Json::object({{"type", Json::Array{"boolean", "string"}}});
  key.set = [](Recipe& r, const YamlNode& node) {
    const auto flag = node.as_bool();
    r.resume_from_checkpoint = flag ? (*flag ? "latest" : "") : text_of(node);
  };
  key.get = [](const Recipe& r) -> Json {
    if (r.resume_from_checkpoint.empty()) return false;
    return r.resume_from_checkpoint == "latest" ? Json(true) : Json(r.resume_from_checkpoint);
  };
}

void add_report_key(KeyTable& t) {
  Key& key = t.custom(
      "report_to", "list",
      "Trackers: tensorboard (event files in logging_dir), none. metrics.jsonl and report.html are always "
      "written.");
  key.choices = {"tensorboard", "none"};
  key.not_yet = {"wandb", "mlflow", "swanlab", "comet_ml", "clearml", "neptune", "trackio"};
  key.other_default(kHf, "none");
  key.schema = Json::object({{"type", Json::Array{"string", "array"}},
                             {"items", Json::object({{"enum", Json::Array{"tensorboard", "none"}}})}});
  key.set = [not_yet = key.not_yet](Recipe& r, const YamlNode& node) {
    Recipe scratch;
    std::vector<Key> keys;
    KeyTable(keys).list("", &Recipe::dataset, "").set(scratch, node);
    r.report_to.clear();
    for (const std::string& name : scratch.dataset) {
      YamlNode item;
      item.kind = YamlNode::Kind::scalar;
      item.text = name;
      item.plain = true;
      const std::size_t i = pick_choice({{"tensorboard", {"all"}}, {"none", {}}}, not_yet, "report_to", item);
      if (i == 0 && r.report_to.empty()) r.report_to.push_back("tensorboard");
    }
  };
  key.get = [](const Recipe& r) -> Json {
    return r.report_to.empty() ? Json("none") : text_array(r.report_to);
  };
}

void add_profile_key(KeyTable& t) {
  Key& key =
      t.custom("profile_steps", "text",
               "Steps (3-5, or 3) whose ops are timed one by one into trace.json beside metrics.jsonl, for "
               "chrome://tracing or Perfetto. At most 100 steps.");
  key.schema = Json::object({{"type", Json::Array{"string", "integer"}}});
  key.set = [](Recipe& recipe, const YamlNode& node) {
    const std::string text = text_of(node);
    std::int64_t first = 0, last = 0;
    const char* end = text.data() + text.size();
    auto read = std::from_chars(text.data(), end, first);
    last = first;
    if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-') {
      read = std::from_chars(read.ptr + 1, end, last);
    }
    if (read.ec != std::errc() || read.ptr != end || first < 1 || last < first || last - first >= 100) {
      fail_expected("a step or first-last, such as 3-5, from 1 on, at most 100 steps", node);
    }
    recipe.profile_first = first;
    recipe.profile_last = last;
  };
  key.get = [](const Recipe& recipe) -> Json {
    if (recipe.profile_first == 0) return {};
    return format("{}-{}", recipe.profile_first, recipe.profile_last);
  };
}

void add_output_keys(KeyTable& t) {
  t.group("output");
  Key& output = t.text("output_dir", &Recipe::output_dir, "Folder of the run.");
  output.required = true;
  output.alias("save", kMegatron);
  t.boolean(
      "overwrite_output_dir", &Recipe::overwrite_output_dir,
      "Delete the run that output_dir holds. Without it (and without resuming) such a folder is refused.");
  add_resume_key(t);
  t.text("run_name", &Recipe::run_name, "Name of the run in reports. Empty: the last part of output_dir.");
  t.integer("logging_steps", &Recipe::logging_steps, kAtLeast1, "Steps between lines of metrics.")
      .alias("log_interval", kMegatron)
      .other_default(kHf, "500")
      .other_default(kSwift, "5");
  t.text("logging_dir", &Recipe::logging_dir, "Folder of log.txt and TensorBoard files. Empty: output_dir.")
      .alias("log_dir", kGuides);
  add_report_key(t);
  add_profile_key(t);
  t.boolean("disable_tqdm", &Recipe::disable_tqdm, "Plain lines instead of a progress bar on a terminal.");
  t.choice<Recipe::When>(
      "save_strategy", &Recipe::save_strategy, kWhen,
      "When to save: never, every save_steps steps, or after each epoch. The end is always saved.");
  t.integer("save_steps", &Recipe::save_steps, kAtLeast1, "Steps between checkpoints.")
      .alias("save_interval", kMegatron)
      .alias("training.checkpoint.interval_steps", kNested);
  t.integer("save_total_limit", &Recipe::save_total_limit, kAtLeast0,
            "Newest checkpoints that are kept (the best one too). 0: all.");
  t.boolean("save_only_model", &Recipe::save_only_model,
            "Checkpoints without optimizer state: smaller, but a run cannot be resumed from them.");
}

std::vector<Key> make_keys() {
  std::vector<Key> keys;
  KeyTable table(keys);
  add_model_keys(table);
  add_tuning_keys(table);
  add_data_keys(table);
  add_chat_keys(table);
  add_step_keys(table);
  add_activation_keys(table);
  add_optimizer_keys(table);
  add_schedule_keys(table);
  add_evaluation_keys(table);
  add_output_keys(table);
  for (Key& key : keys) {
    key.conditional |= key.name.starts_with("lr_scheduler_kwargs.") || is_optimizer_option(key.name) ||
                       is_activation_option(key.name);
  }
  add_other_keys(keys);
  return keys;
}

}  // namespace

const std::vector<Key>& recipe_keys() {
  static const std::vector<Key> keys = make_keys();
  return keys;
}

}  // namespace lode
