#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "core/file.h"
#include "train/recipe.h"
#include "train/trainer.h"
#include "verbs.h"

namespace lode {

void add_train_verb(CLI::App& app, std::span<char* const> command_line) {
  CLI::App* verb = app.add_subcommand("train", "Train as a recipe says");
  struct Arguments {
    std::vector<std::string> recipe;
    bool json = false, help_keys = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  verb->add_option("recipe", arguments->recipe,
                   "a recipe's path, then key=value ... (`lode train --help-keys` lists the keys)");
  verb->add_flag("--json", arguments->json, "print where the result is as JSON");
  verb->add_flag("--help-keys", arguments->help_keys, "list the keys of recipes");
  std::vector<std::string> words(command_line.begin(), command_line.end());
  verb->callback([arguments, words] {
    if (arguments->help_keys) {
      std::fputs(recipe_help().c_str(), stdout);
      return;
    }
    Log log;
    const Recipe recipe = recipe_from_arguments(real_files(), arguments->recipe);
    const TrainOutcome outcome = train(real_files(), recipe, words, log);
    if (arguments->json) {
      const Json json = Json::object({{"model", outcome.result},
                                      {"step", outcome.step},
                                      {"already_finished", outcome.already_finished}});
      std::printf("%s\n", json.dump().c_str());
    } else {
      std::printf("%s\n", outcome.result.c_str());
    }
  });
}

}  // namespace lode
