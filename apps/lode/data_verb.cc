#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>

#include "core/fail.h"
#include "core/file.h"
#include "data/inspect.h"
#include "models/hub.h"
#include "train/chat_setup.h"
#include "train/data_setup.h"
#include "train/engine.h"
#include "train/inspect_model.h"
#include "train/model_setup.h"
#include "verbs.h"

namespace lode {
namespace {

struct DataArguments {
  std::vector<std::string> recipe;  // path and overrides
  std::int64_t samples = 3;
  bool json = false, no_color = false;
};

struct InspectedSet {
  std::string name;
  DataSummary summary;
};

Json sample_json(const InspectedSample& sample) {
  Json tokens = Json::array();
  for (const InspectedToken& token : sample.tokens)
    tokens.push_back(Json::object({{"id", token.id}, {"text", token.text}, {"weight", token.weight}}));
  return Json::object({{"origin", sample.origin},
                       {"set", sample.set},
                       {"length", sample.length},
                       {"targets", sample.targets},
                       {"tokens", std::move(tokens)}});
}

void print_json(const std::string& source, const std::vector<InspectedSet>& sets,
                const std::vector<InspectedSample>& samples) {
  Json json = Json::object({{"template", source.empty() ? Json() : Json(source)}}), eval = Json::object();
  Json list = Json::array();
  for (const InspectedSet& set : sets) {
    (&set == &sets.front() ? json["train"] : eval[set.name]) = set.summary.to_json();
  }
  json["eval"] = std::move(eval);
  for (const InspectedSample& sample : samples) list.push_back(sample_json(sample));
  json["samples"] = std::move(list);
  std::printf("%s\n", json.dump(2).c_str());
}

void print_text(const std::string& source, const std::vector<InspectedSet>& sets,
                const std::vector<InspectedSample>& samples, bool colour) {
  for (const InspectedSample& sample : samples) std::printf("%s\n", render_sample(sample, colour).c_str());
  if (!source.empty()) std::printf("chat template: %s\n", source.c_str());
  for (const InspectedSet& set : sets) {
    std::printf("%s:\n", set.name.c_str());
    for (const std::string& line : set.summary.lines()) std::printf("  %s\n", line.c_str());
  }
}

// Special tokens of the samples that the base never trained.
void mark_untrained(FileSystem& files, const std::string& model_path, const ModelConfig& config,
                    std::vector<InspectedSet>& sets) {
  std::set<std::int32_t> used;
  for (const InspectedSet& set : sets) {
    for (const SpecialTokenCount& token : set.summary.special_tokens) used.insert(token.id);
  }
  const auto untrained = find_untrained_rows(files, model_path, config, {used.begin(), used.end()});
  for (InspectedSet& set : sets) {
    for (const SpecialTokenCount& token : set.summary.special_tokens) {
      if (std::ranges::find(untrained, token.id) != untrained.end())
        set.summary.untrained.push_back(token.id);
    }
  }
}

void inspect(const DataArguments& arguments) {
  FileSystem& files = real_files();
  const Recipe recipe = recipe_from_arguments(files, arguments.recipe);
  if (recipe.streaming)
    fail(ErrorKind::usage, "streaming: there is nothing prepared to inspect; set it to false");
  require_recipe_files(files, recipe);
  Log log;
  const std::string model_path = resolve_model_path(files, recipe.model_name_or_path);
  ModelParts parts = read_recipe_parts(files, recipe, model_path);
  std::string source;
  if (recipe.stage == Recipe::Stage::sft) {
    if (!recipe.chat_template.empty()) source = "template " + recipe.chat_template;
    if (parts.tokenizer.chat_template()) source = "the model's own";
    // A named template that differs from the model's own is still said by the preparation.
    parts.tokenizer = with_named_template(parts.tokenizer, recipe.chat_template);
  }
  const Engine engine({.threads = static_cast<int>(recipe.num_threads)});
  const DataSets data = prepare_data_sets(files, recipe, parts.tokenizer, engine.threads(), log);
  std::vector<InspectedSet> sets = {{"train", summarize(*data.train, parts.tokenizer)}};
  for (const EvalRows& set : data.eval) sets.push_back({set.name, summarize(*set.rows, parts.tokenizer)});
  if (!recipe.train_from_scratch) mark_untrained(files, model_path, parts.config, sets);
  const auto samples = inspect_samples(*data.train, parts.tokenizer, arguments.samples);
  const bool colour = !arguments.no_color && ::isatty(STDOUT_FILENO) == 1;
  if (arguments.json) {
    print_json(source, sets, samples);
  } else {
    print_text(source, sets, samples, colour);
  }
}

}  // namespace

void add_data_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("data", "Look into training data");
  verb->require_subcommand(1);
  const auto arguments = std::make_shared<DataArguments>();
  CLI::App* command =
      verb->add_subcommand("inspect", "Show what a recipe's data become: trained and masked tokens, figures");
  command->add_option("recipe", arguments->recipe, "a recipe's path, then key=value ...")->required();
  command->add_option("--samples,-n", arguments->samples, "how many samples are shown")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "print JSON");
  command->add_flag("--no-color", arguments->no_color,
                    "mark trained text with \xc2\xab \xc2\xbb instead of colours, as without a terminal");
  command->callback([arguments] { inspect(*arguments); });
}

}  // namespace lode
