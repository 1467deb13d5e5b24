#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>

#include "core/fail.h"
#include "core/file.h"
#include "models/hub.h"
#include "train/batch_size.h"
#include "train/chat_setup.h"
#include "train/memory_plan.h"
#include "train/step_time.h"
#include "verbs.h"

namespace lode {
namespace {

struct PlanArguments {
  std::vector<std::string> recipe;  // path and overrides
  std::string fit;
  bool json = false, full_rows = false, no_time = false;
};

// What the plan is made from: no weights.
struct Parts {
  Recipe recipe;
  std::string model_path;
  std::optional<ModelParts> model;
  DataSets data;
  std::size_t limit = 0;      // bytes; 0: none
  std::optional<Fact> batch;  // how auto was resolved
};

void choose_batch(Parts& parts) {
  if (auto fact = choose_batch_size(real_files(), parts.recipe, *parts.model, parts.model_path, parts.data,
                                    parts.limit))
    parts.batch = std::move(fact);
}

Parts read_parts(const PlanArguments& arguments, Log& log) {
  FileSystem& files = real_files();
  Parts parts{.recipe = recipe_from_arguments(files, arguments.recipe)};
  require_recipe_files(files, parts.recipe);
  parts.model_path = resolve_model_path(files, parts.recipe.model_name_or_path);
  parts.model = read_recipe_parts(files, parts.recipe, parts.model_path);
  if (parts.recipe.stage == Recipe::Stage::sft)
    parts.model->tokenizer = with_named_template(parts.model->tokenizer, parts.recipe.chat_template);
  parts.limit = memory_limit_bytes(arguments.fit.empty() ? parts.recipe.memory_limit : arguments.fit);
  if (parts.recipe.streaming || arguments.full_rows) choose_batch(parts);
  if (!arguments.full_rows) {
    Engine engine({.threads = static_cast<int>(parts.recipe.num_threads)});
    parts.data = prepare_data_sets(files, parts.recipe, parts.model->tokenizer, engine.threads(), log);
    choose_batch(parts);
  }
  return parts;
}

// A step as most are: the first of the order in which the run would train; full rows without data.
Step typical_step(const Parts& parts) {
  if (parts.data.train && parts.data.train->size() > 0) {
    const StepLoader loader(
        parts.data.train,
        {.seed = static_cast<std::uint64_t>(parts.recipe.data_seed.value_or(parts.recipe.seed)),
         .rows_per_micro_batch = parts.recipe.per_device_train_batch_size,
         .micro_batches_per_step = parts.recipe.gradient_accumulation_steps});
    return loader.make_step(0);
  }
  Recipe one = parts.recipe;
  Step step = largest_step(one, nullptr, parts.model->config.spec.vocab_size);
  while (static_cast<std::int64_t>(step.micro_batches.size()) < one.gradient_accumulation_steps) {
    step.micro_batches.push_back(step.micro_batches.front());
    step.num_targets += step.micro_batches.back().num_targets();
  }
  return step;
}

Json to_json(const MemoryFix& fix) {
  return Json::object({{"changes", Json::Array(fix.changes.begin(), fix.changes.end())},
                       {"peak", static_cast<std::int64_t>(fix.peak)},
                       {"slow_down", fix.slow_down}});
}

void plan(const PlanArguments& arguments) {
  FileSystem& files = real_files();
  Log log;
  const Parts parts = read_parts(arguments, log);
  const MemoryPlan memory = plan_memory(files, parts.recipe, *parts.model, parts.model_path, parts.data);
  const std::size_t limit = parts.limit;
  Json json = memory.to_json();
  json["memory_limit"] = limit == 0 ? Json() : Json(static_cast<std::int64_t>(limit));
  json["micro_batch"] = Json::object({{"rows", parts.recipe.per_device_train_batch_size},
                                      {"times", parts.recipe.gradient_accumulation_steps}});
  if (parts.batch) json["micro_batch"]["why"] = parts.batch->why;
  if (!arguments.json) {
    if (parts.batch)
      std::printf("micro-batch: %s: %s\n", parts.batch->chosen.c_str(), parts.batch->why.c_str());
    for (const std::string& line : memory.lines()) std::printf("%s\n", line.c_str());
    if (limit != 0) {
      std::printf("memory limit: %s: %s\n", format_bytes(limit).c_str(),
                  memory.peak() <= limit ? "it fits" : "it does not fit");
    }
  }
  if (!arguments.no_time) {
    const StepTime time =
        predict_step_time(files, parts.recipe, *parts.model, parts.model_path, typical_step(parts));
    json["step_seconds"] = time.seconds;
    json["step_tokens"] = time.tokens;
    if (!arguments.json)
      std::printf("time: %.3g s a step of %.0f tokens, %.0f tokens/s\n", time.seconds, time.tokens,
                  time.tokens / time.seconds);
  }
  if (!arguments.fit.empty()) {
    const auto fixes =
        find_memory_fixes(files, parts.recipe, *parts.model, parts.model_path, parts.data, limit);
    Json list = Json::array();
    for (const MemoryFix& fix : fixes) list.push_back(to_json(fix));
    json["fixes"] = std::move(list);
    if (!arguments.json && memory.peak() > limit) {
      for (const std::string& line : fix_lines(fixes, limit)) std::printf("%s\n", line.c_str());
    }
  }
  if (arguments.json) std::printf("%s\n", json.dump(2).c_str());
}

}  // namespace

void add_plan_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("plan", "Say what memory and time a recipe needs, before it runs");
  const auto arguments = std::make_shared<PlanArguments>();
  verb->add_option("recipe", arguments->recipe, "a recipe's path, then key=value ...")->required();
  verb->add_option("--fit", arguments->fit, "rank the changes that make it fit: 6GiB, 80%, auto");
  verb->add_flag("--full-rows", arguments->full_rows, "assume rows of cutoff_len; data is not read");
  verb->add_flag("--no-time", arguments->no_time, "memory alone: nothing is measured");
  verb->add_flag("--json", arguments->json, "print JSON");
  verb->callback([arguments] { plan(*arguments); });
}

}  // namespace lode
