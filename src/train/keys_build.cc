#include "train/keys_build.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"

namespace lode {
namespace {

std::string number_text(double value) {
  return Json(value).dump();
}

std::string bound_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15)
    return format("{}", static_cast<std::int64_t>(value));
  return number_text(value);
}

Json range_schema(const char* type, const Range& range) {
  const auto bound = [&](double value) {
    return value == std::floor(value) && std::abs(value) < 1e15 ? Json(static_cast<std::int64_t>(value))
                                                                : Json(value);
  };
  Json schema = Json::object({{"type", type}});
  if (std::isfinite(range.min)) schema[range.above ? "exclusiveMinimum" : "minimum"] = bound(range.min);
  if (std::isfinite(range.max)) schema[range.below ? "exclusiveMaximum" : "maximum"] = bound(range.max);
  return schema;
}

std::int64_t read_integer(const YamlNode& node, const Range& range) {
  const std::string expected = "an integer" + (range.text().empty() ? "" : " " + range.text());
  const auto value = node.as_int();
  if (!value || !range.holds(static_cast<double>(*value))) fail_expected(expected, node);
  return *value;
}

double read_number(const YamlNode& node, const Range& range) {
  const std::string expected = "a number" + (range.text().empty() ? "" : " " + range.text());
  const auto value = node.as_number();
  if (!value || !range.holds(*value)) fail_expected(expected, node);
  return *value;
}

std::vector<std::string> split_commas(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string part = text.substr(begin, end - begin);
    part.erase(0, part.find_first_not_of(" \t\n"));
    part.erase(part.find_last_not_of(" \t\n") + 1);
    if (!part.empty()) parts.push_back(part);
    begin = end + 1;
  }
  return parts;
}

std::vector<std::string> read_list(const YamlNode& node, bool commas) {
  std::vector<std::string> list;
  if (node.is_scalar()) {
    if (commas) return split_commas(node.text);
    return {node.text};
  }
  if (node.kind != YamlNode::Kind::list) fail_expected("a list", node);
  for (const YamlNode& item : node.items) list.push_back(text_of(item));
  return list;
}

}  // namespace

std::string Range::text() const {
  const bool has_min = std::isfinite(min);
  const bool has_max = std::isfinite(max);
  const std::string low = (above ? "above " : has_max ? "from " : "of at least ") + bound_text(min);
  const std::string high = (below ? "below " : has_min && !above ? "to " : "at most ") + bound_text(max);
  if (has_min && has_max) return low + (above || below ? " and " : " ") + high;
  if (has_min) return low;
  return has_max ? high : "";
}

void fail_expected(const std::string& what, const YamlNode& found) {
  fail(ErrorKind::usage, "expected {}, found {}", what, found.describe());
}

std::string text_of(const YamlNode& node) {
  if (!node.is_scalar()) fail_expected("text", node);
  return node.text;
}

std::size_t pick_choice(const std::vector<std::pair<std::string, std::vector<std::string>>>& choices,
                        const std::vector<std::string>& not_yet, const std::string& key,
                        const YamlNode& node) {
  std::string names;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const auto& [name, also] = choices[i];
    if (node.is_scalar() && (node.text == name || std::ranges::find(also, node.text) != also.end())) return i;
    names += (i == 0 ? "" : i + 1 == choices.size() ? " or " : ", ") + name;
  }
  if (node.is_scalar() && std::ranges::find(not_yet, node.text) != not_yet.end()) {
    fail(ErrorKind::usage, "not supported yet by lode: {} {} (available: {})", key, node.text, names);
  }
  fail_expected(names, node);
}

Key& KeyTable::add(const char* name, const char* type, const char* doc) {
  Key key;
  key.name = name;
  key.group = group_;
  key.type = type;
  key.doc = doc;
  keys_.push_back(std::move(key));
  return keys_.back();
}

Key& KeyTable::boolean(const char* name, bool Recipe::*field, const char* doc) {
  Key& key = add(name, "true or false", doc);
  key.schema = Json::object({{"type", "boolean"}});
  key.set = [=](Recipe& recipe, const YamlNode& node) {
    const auto value = node.as_bool();
    if (!value) fail_expected("true or false", node);
    recipe.*field = *value;
  };
  key.get = [=](const Recipe& recipe) -> Json { return recipe.*field; };
  return key;
}

Key& KeyTable::integer(const char* name, std::int64_t Recipe::*field, Range range, const char* doc) {
  Key& key = add(name, "integer", doc);
  key.range = range.text();
  key.schema = range_schema("integer", range);
  key.set = [=](Recipe& recipe, const YamlNode& node) { recipe.*field = read_integer(node, range); };
  key.get = [=](const Recipe& recipe) -> Json { return recipe.*field; };
  return key;
}

Key& KeyTable::integer(const char* name, std::optional<std::int64_t> Recipe::*field, Range range,
                       const char* doc) {
  Key& key = add(name, "integer", doc);
  key.range = range.text();
  key.schema = range_schema("integer", range);
  key.set = [=](Recipe& recipe, const YamlNode& node) { recipe.*field = read_integer(node, range); };
  key.get = [=](const Recipe& recipe) -> Json {
    const std::optional<std::int64_t>& value = recipe.*field;
    return value ? Json(*value) : Json();
  };
  return key;
}

Key& KeyTable::number(const char* name, double Recipe::*field, Range range, const char* doc) {
  Key& key = add(name, "number", doc);
  key.range = range.text();
  key.schema = range_schema("number", range);
  key.set = [=](Recipe& recipe, const YamlNode& node) { recipe.*field = read_number(node, range); };
  key.get = [=](const Recipe& recipe) -> Json { return recipe.*field; };
  return key;
}

Key& KeyTable::number(const char* name, std::optional<double> Recipe::*field, Range range, const char* doc) {
  Key& key = add(name, "number", doc);
  key.range = range.text();
  key.schema = range_schema("number", range);
  key.set = [=](Recipe& recipe, const YamlNode& node) { recipe.*field = read_number(node, range); };
  key.get = [=](const Recipe& recipe) -> Json {
    const std::optional<double>& value = recipe.*field;
    return value ? Json(*value) : Json();
  };
  return key;
}

Key& KeyTable::text(const char* name, std::string Recipe::*field, const char* doc) {
  Key& key = add(name, "text", doc);
  key.schema = Json::object({{"type", "string"}});
  key.set = [=](Recipe& recipe, const YamlNode& node) { recipe.*field = text_of(node); };
  key.get = [=](const Recipe& recipe) -> Json { return recipe.*field; };
  return key;
}

Key& KeyTable::list(const char* name, std::vector<std::string> Recipe::*field, const char* doc, bool commas) {
  Key& key = add(name, "list", doc);
  key.schema =
      Json::object({{"type", Json::Array{"string", "array"}}, {"items", Json::object({{"type", "string"}})}});
  key.set = [=](Recipe& recipe, const YamlNode& node) { recipe.*field = read_list(node, commas); };
  key.get = [=](const Recipe& recipe) -> Json {
    const std::vector<std::string>& values = recipe.*field;
    return Json::Array(values.begin(), values.end());
  };
  return key;
}

Key& KeyTable::text_choice(const char* name, std::string Recipe::*field,
                           const std::vector<Choice<std::string>>& choices,
                           const std::vector<std::string>& not_yet, const char* doc) {
  Key& key = choice<std::string>(name, field, choices, doc);
  refuse_choices(key, not_yet);
  return key;
}

void refuse_choices(Key& key, const std::vector<std::string>& names) {
  key.not_yet = names;
  key.set = [set = key.set, names, name = key.name, choices = key.choices](Recipe& recipe,
                                                                           const YamlNode& node) {
    std::vector<std::pair<std::string, std::vector<std::string>>> known;
    for (const std::string& choice : choices) known.push_back({choice, {}});
    if (node.is_scalar() && std::ranges::find(names, node.text) != names.end()) {
      pick_choice(known, names, name, node);
    }
    set(recipe, node);
  };
}

Key& KeyTable::custom(const char* name, const char* type, const char* doc) {
  return add(name, type, doc);
}

Key& KeyTable::no_effect(const char* name, const char* because) {
  Key& key = add(name, "anything", "");
  key.support = Key::Support::no_effect;
  key.no_effect_because = because;
  return key;
}

Key& KeyTable::not_yet(const char* name, std::vector<std::string> asks_for_nothing) {
  Key& key = add(name, "anything", "");
  key.support = Key::Support::not_yet;
  key.asks_for_nothing = std::move(asks_for_nothing);
  return key;
}

}  // namespace lode
