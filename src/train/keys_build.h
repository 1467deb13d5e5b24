// Makers of table entries: each ties a key to a field of Recipe with its type, range and schema.
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "train/keys.h"

namespace lode {

struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above = false;  // min itself is excluded
  bool below = false;  // max itself is excluded

  bool holds(double x) const { return (above ? x > min : x >= min) && (below ? x < max : x <= max); }
  std::string text() const;
};

// Tools whose names are accepted.
inline const std::string kLlamaFactory = "LLaMA-Factory", kSwift = "ms-swift", kAxolotl = "axolotl",
                         kMegatron = "Megatron", kTrl = "TRL", kPeft = "PEFT", kHf{kHuggingFace};

inline constexpr Range kAtLeast0{.min = 0};
inline constexpr Range kAtLeast1{.min = 1};
inline constexpr Range kAbove0{.min = 0, .above = true};
inline constexpr Range kShare{.min = 0, .max = 1, .below = true};

template <class E>
struct Choice {
  E value;
  std::string name;
  std::vector<std::string> also;  // other tools' spellings
};

[[noreturn]] void fail_expected(const std::string& what, const YamlNode& found);
std::string text_of(const YamlNode& node);  // any scalar as text

// Appends to a table; the references are good until the next call.
class KeyTable {
 public:
  explicit KeyTable(std::vector<Key>& keys) : keys_(keys) {}
  void group(std::string name) { group_ = std::move(name); }

  Key& boolean(const char* name, bool Recipe::*field, const char* doc);
  Key& integer(const char* name, std::int64_t Recipe::*field, Range range, const char* doc);
  Key& integer(const char* name, std::optional<std::int64_t> Recipe::*field, Range range, const char* doc);
  Key& number(const char* name, double Recipe::*field, Range range, const char* doc);
  Key& number(const char* name, std::optional<double> Recipe::*field, Range range, const char* doc);
  Key& text(const char* name, std::string Recipe::*field, const char* doc);
  // A comma-separated text is a list too, unless `commas` is false.
  Key& list(const char* name, std::vector<std::string> Recipe::*field, const char* doc, bool commas = true);
  Key& text_choice(const char* name, std::string Recipe::*field,
                   const std::vector<Choice<std::string>>& choices, const std::vector<std::string>& not_yet,
                   const char* doc);
  template <class E>
  Key& choice(const char* name, E Recipe::*field, std::vector<Choice<E>> choices, const char* doc);
  Key& custom(const char* name, const char* type, const char* doc);  // set, get and schema are the caller's
  Key& no_effect(const char* name, const char* because);
  Key& not_yet(const char* name, std::vector<std::string> asks_for_nothing = {});

 private:
  Key& add(const char* name, const char* type, const char* doc);
  std::vector<Key>& keys_;
  std::string group_;
};

// Values of a choice that other tools know and lode does not.
void refuse_choices(Key& key, const std::vector<std::string>& names);

void add_tuning_keys(KeyTable& table);  // keys_tuning.cc
void add_chat_keys(KeyTable& table);
void add_batch_keys(KeyTable& table);               // keys_batch.cc
void add_activation_keys(KeyTable& table);          // keys_activation.cc
bool is_activation_option(const std::string& key);  // has a meaning only with its policy
void add_optimizer_choice_keys(KeyTable& table);    // keys_optimizer.cc
bool is_optimizer_option(const std::string& key);   // has a meaning only with its optimizer

// The index of the choice that the node spells; throws otherwise, also on a value of `not_yet`.
std::size_t pick_choice(const std::vector<std::pair<std::string, std::vector<std::string>>>& choices,
                        const std::vector<std::string>& not_yet, const std::string& key,
                        const YamlNode& node);

template <class E>
Key& KeyTable::choice(const char* name, E Recipe::*field, std::vector<Choice<E>> choices, const char* doc) {
  Key& key = add(name, "choice", doc);
  std::vector<std::pair<std::string, std::vector<std::string>>> names;
  Json list = Json::array();
  for (const Choice<E>& c : choices) {
    names.push_back({c.name, c.also});
    key.choices.push_back(c.name);
    list.push_back(c.name);
  }
  key.schema = Json::object({{"enum", list}});
  key.set = [=](Recipe& recipe, const YamlNode& node) {
    recipe.*field = choices[pick_choice(names, {}, name, node)].value;
  };
  key.get = [=](const Recipe& recipe) -> Json {
    for (const Choice<E>& c : choices) {
      if (c.value == recipe.*field) return c.name;
    }
    return {};
  };
  return key;
}

}  // namespace lode
