#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "core/file.h"
#include "core/format.h"
#include "train/recipe.h"
#include "verbs.h"

namespace lode {
namespace {

struct RecipeArguments {
  std::vector<std::string> recipe;  // path and overrides
  std::string group;
  bool json = false;
};

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
}

Json as_array(const std::vector<std::string>& texts) {
  return Json::Array(texts.begin(), texts.end());
}

void check(const RecipeArguments& arguments) {
  const Recipe recipe = recipe_from_arguments(real_files(), arguments.recipe);
  require_recipe_files(real_files(), recipe);
  if (arguments.json) {
    print(Json::object({{"ok", true}, {"notices", as_array(recipe.notices)}}).dump(2) + "\n");
    return;
  }
  for (const std::string& notice : recipe.notices) print("note: " + notice + "\n");
  print(format("{}: no problems\n", recipe.source_file.empty() ? "recipe" : recipe.source_file));
}

void show(const RecipeArguments& arguments) {
  const Recipe recipe = recipe_from_arguments(real_files(), arguments.recipe);
  for (const std::string& notice : recipe.notices) std::fprintf(stderr, "note: %s\n", notice.c_str());
  print(arguments.json ? recipe.to_json().dump(2) + "\n" : recipe.to_yaml());
}

}  // namespace

void add_recipe_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("recipe", "Check, show and explain recipes");
  verb->require_subcommand(1);
  const auto arguments = std::make_shared<RecipeArguments>();
  const auto add = [&](const char* name, const char* doc) {
    CLI::App* command = verb->add_subcommand(name, doc);
    command->add_option("recipe", arguments->recipe, "a recipe's path, then key=value ...")->required();
    command->add_flag("--json", arguments->json, "print JSON");
    return command;
  };
  add("check", "Say all problems of a recipe, missing files too")->callback([arguments] {
    check(*arguments);
  });
  add("show", "Print the resolved recipe: every key with its value")->callback([arguments] {
    show(*arguments);
  });
  verb->add_subcommand("schema", "Print the JSON Schema of recipes")->callback([] {
    print(recipe_schema().dump(2) + "\n");
  });
  verb->add_subcommand("reference", "Print the reference page (Markdown)")->callback([] {
    print(recipe_reference_markdown());
  });
  CLI::App* keys = verb->add_subcommand("keys", "Explain the keys, all or a group's");
  keys->add_option("group", arguments->group, "model, data, step, optimizer, evaluation or output");
  keys->callback([arguments] {
    print(recipe_help(arguments->group.empty() ? std::nullopt : std::optional(arguments->group)));
  });
}

}  // namespace lode
