// The table of recipe keys: each is declared once, and the parser, the help, the schema and the reference
// page come from it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "train/recipe.h"
#include "train/yaml.h"

namespace lode {

struct KeyAlias {
  std::string name, tool;  // dots stand for nested blocks
};

struct Key {
  enum class Support {
    full,
    no_effect,  // accepted, its meaninglessness said once
    not_yet,    // an error, unless the value asks for nothing
  };

  std::string name, group, doc;
  Support support = Support::full;
  std::string type;                      // "integer", "number", "true or false", "text", "list", "choice"
  std::string range;                     // for people: "from 0 to 1", "" when there is none
  std::vector<std::string> choices;      // canonical spellings
  std::vector<std::string> not_yet;      // values that other tools know and lode does not
  std::vector<KeyAlias> aliases;         // other tools' names
  std::vector<KeyAlias> other_defaults;  // {value, tool}: the default of a tool where it differs from ours
  std::string no_effect_because;
  std::vector<std::string>
      asks_for_nothing;  // not_yet keys: values that are fine, beside false, none and null
  bool required = false;
  bool takes_map = false;  // a block of keys is a value, not a group of keys
  bool conditional =
      false;  // has a meaning only beside certain values of others: not written when it is the default
  Json schema;
  // Throws Error(usage): "expected X, found Y".
  std::function<void(Recipe&, const YamlNode&)> set;
  std::function<Json(const Recipe&)> get;

  Key& alias(std::string alias_name, std::string tool) {
    aliases.push_back({std::move(alias_name), std::move(tool)});
    return *this;
  }
  Key& other_default(std::string tool, std::string value) {
    other_defaults.push_back({std::move(value), std::move(tool)});
    return *this;
  }
};

inline constexpr std::string_view kHuggingFace = "Hugging Face";

const std::vector<Key>& recipe_keys();

struct KeyMatch {
  const Key* key = nullptr;         // null: unknown
  const KeyAlias* alias = nullptr;  // set when the name was an alias
};
KeyMatch find_key(std::string_view name);

bool is_key_group(std::string_view prefix);  // some name or alias starts with "prefix."
std::string nearest_key(
    std::string_view name);                   // canonical name of the most similar one; "" when none is close
std::string json_as_text(const Json& value);  // a value as people write it in a recipe
void add_other_keys(
    std::vector<Key>& keys);  // keys_other.cc: those without effect and those not supported yet

}  // namespace lode
