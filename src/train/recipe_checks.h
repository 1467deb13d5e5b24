// What reading a recipe collects, and the checks of keys against each other.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "train/keys.h"
#include "train/recipe.h"
#include "train/yaml.h"

namespace lode {

struct RecipeEntry {
  std::string name, where;  // as written; "recipe.yaml:3" or "command line"
  const Key* key = nullptr;
  const KeyAlias* alias = nullptr;
  YamlNode value;
};

struct RecipeReading {
  std::vector<std::string> problems;
  std::map<std::string, std::string> set;           // canonical name of what has a value -> where
  std::set<std::string> failed;                     // names whose value was refused
  std::map<std::string, const RecipeEntry*> given;  // every entry, whatever its value
  std::set<std::string> tools;                      // whose names were used
};

// Fills what depends on other keys, adds contradictions and missing keys to the problems, and the notices of
// meaning.
void check_recipe(Recipe& recipe, RecipeReading& reading);
// Of the keys of activations, activation_policy resolved from them; activation_checks.cc.
void check_activations(Recipe& recipe, RecipeReading& reading);
// Of the batch, gradient_accumulation_steps resolved from global_batch_size; batch_checks.cc.
void check_batch(Recipe& recipe, RecipeReading& reading);
// Of the optimizer's keys; optimizer_checks.cc.
void check_optimizer(const Recipe& recipe, RecipeReading& reading);

}  // namespace lode
