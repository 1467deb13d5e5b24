// What the table of keys says in other forms: the resolved recipe, the schema, the help and the reference
// page.
#include <algorithm>

#include "core/fail.h"
#include "data/data_sets.h"
#include "models/hub.h"
#include "train/keys.h"
#include "train/recipe.h"
#include "train/yaml.h"

namespace lode {
namespace {

constexpr std::string_view kSchedulePrefix = "lr_scheduler_kwargs.";

std::string yaml_value(const Json& value) {
  if (value.is_string()) return yaml_quote(value.as_string());
  if (!value.is_array()) return value.dump();
  std::string list;
  for (const Json& item : value.as_array()) list += (list.empty() ? "" : ", ") + yaml_value(item);
  return "[" + list + "]";
}

// The place of a dotted name inside nested objects.
Json& nested(Json& object, std::string_view name) {
  const std::size_t dot = name.find('.');
  if (dot == std::string_view::npos) return object[name];
  return nested(object[name.substr(0, dot)], name.substr(dot + 1));
}

Json& nested_schema(Json& schema, std::string_view name) {
  const std::size_t dot = name.find('.');
  Json& properties = schema["properties"];
  if (dot == std::string_view::npos) return properties[name];
  Json& block = properties[name.substr(0, dot)];
  block["type"] = Json::Array{"object", "boolean", "string", "null"};
  return nested_schema(block, name.substr(dot + 1));
}

void merge_into(Json& place, const Json& schema) {
  for (const auto& [name, value] : schema.as_object()) place[name] = value;
}

Json with_null(const Json& schema) {
  return Json::object({{"anyOf", Json::Array{schema, Json::object({{"type", "null"}})}}});
}

Json key_schema(const Key& key) {
  if (key.support == Key::Support::no_effect) {
    return Json::object({{"description", "no effect: " + key.no_effect_because}});
  }
  if (key.support == Key::Support::not_yet) {
    Json allowed = Json::Array{false, Json(), "none"};
    for (const std::string& value : key.asks_for_nothing) {
      allowed.push_back(value == "true" ? Json(true) : value == "1" ? Json(1) : Json(value));
    }
    return Json::object({{"description", "not supported yet"}, {"enum", allowed}});
  }
  Json schema = with_null(key.schema);
  schema["description"] = key.doc;
  const Json value = key.get(Recipe{});
  if (!value.is_null() && !key.required) schema["default"] = value;
  return schema;
}

// "from 0 to 1, or one of a, b"
std::string type_text(const Key& key) {
  if (key.choices.empty()) return key.type + (key.range.empty() ? "" : " " + key.range);
  std::string names;
  for (const std::string& choice : key.choices) names += (names.empty() ? "" : ", ") + choice;
  return names;
}

std::string default_text(const Key& key) {
  if (key.required) return "required";
  const std::string text = json_as_text(key.get(Recipe{}));
  return text.empty() ? "empty" : text;
}

std::string aliases_text(const Key& key, std::string_view quote) {
  std::string text;
  for (const KeyAlias& alias : key.aliases) {
    text += format("{}{}{}{} ({})", text.empty() ? "" : ", ", quote, alias.name, quote, alias.tool);
  }
  return text;
}

std::string other_defaults_text(const Key& key) {
  std::string text;
  for (const KeyAlias& other : key.other_defaults) {
    text += format("{}{}: {}", text.empty() ? "" : ", ", other.tool, other.name);
  }
  return text;
}

}  // namespace

Json Recipe::to_json() const {
  Json result = Json::object();
  for (const Key& key : recipe_keys()) {
    if (key.support == Key::Support::full) nested(result, key.name) = key.get(*this);
  }
  return result;
}

std::string Recipe::to_yaml() const {
  std::string text, group, schedule;
  for (const Key& key : recipe_keys()) {
    if (key.support != Key::Support::full) continue;
    const Json value = key.get(*this);
    if (value.is_null() || (key.conditional && value == key.get(Recipe{}))) continue;
    if (key.name.starts_with(kSchedulePrefix)) {
      schedule += format("  {}: {}\n", key.name.substr(kSchedulePrefix.size()), yaml_value(value));
      continue;
    }
    if (key.group != group) text += format("{}# {}\n", group.empty() ? "" : "\n", key.group);
    group = key.group;
    if (!value.is_object()) {
      text += format("{}: {}\n", key.name, yaml_value(value));
      continue;
    }
    text += key.name + ":\n";
    for (const auto& [name, item] : value.as_object())
      text += format("  {}: {}\n", yaml_quote(name), yaml_value(item));
  }
  if (!schedule.empty()) text += "\nlr_scheduler_kwargs:\n" + schedule;
  return text;
}

Json recipe_schema() {
  Json schema = Json::object({{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                              {"title", "Lodestone recipe"},
                              {"type", "object"},
                              {"additionalProperties", false},
                              {"properties", Json::object()}});
  Json needed = Json::array();
  for (const Key& key : recipe_keys()) {
    merge_into(nested_schema(schema, key.name), key_schema(key));
    if (!key.required) continue;
    Json any = Json::Array{Json::object({{"required", Json::Array{key.name}}})};
    for (const KeyAlias& alias : key.aliases)
      any.push_back(Json::object({{"required", Json::Array{alias.name}}}));
    needed.push_back(Json::object({{"anyOf", any}}));
  }
  for (const Key& key : recipe_keys()) {
    for (const KeyAlias& alias : key.aliases) {
      Json entry = key_schema(key);
      entry["description"] = format("another name of {} ({})", key.name, alias.tool);
      entry["deprecated"] = true;
      Json& place = nested_schema(schema, alias.name);
      if (place.is_null()) merge_into(place, entry);
    }
  }
  schema["allOf"] = needed;
  // A block such as fp16 is a value too: its own rule would refuse the block.
  for (auto& [name, property] : schema["properties"].as_object()) {
    if (!property.find("properties")) continue;
    Json::Object& members = property.as_object();
    std::erase_if(members, [](const Json::Member& m) { return m.first == "enum" || m.first == "anyOf"; });
  }
  return schema;
}

std::vector<std::string> recipe_groups() {
  std::vector<std::string> groups;
  for (const Key& key : recipe_keys()) {
    if (key.support == Key::Support::full && (groups.empty() || groups.back() != key.group)) {
      groups.push_back(key.group);
    }
  }
  return groups;
}

std::string recipe_help(const std::optional<std::string>& group) {
  const std::vector<std::string> groups = recipe_groups();
  if (group && std::ranges::find(groups, *group) == groups.end()) {
    std::string names;
    for (const std::string& name : groups) names += (names.empty() ? "" : ", ") + name;
    fail(ErrorKind::usage, "no group of keys is called {}; there are {}", *group, names);
  }
  std::string text, last;
  for (const Key& key : recipe_keys()) {
    if (key.support != Key::Support::full || (group && key.group != *group)) continue;
    if (key.group != last) text += format("{}{}:\n", last.empty() ? "" : "\n", key.group);
    last = key.group;
    text += format("  {}  <{}> [{}]\n      {}\n", key.name, type_text(key), default_text(key), key.doc);
    if (!key.aliases.empty()) text += format("      also: {}\n", aliases_text(key, ""));
  }
  return text;
}

std::string recipe_reference_markdown() {
  std::string text =
      "# Recipe reference\n\n"
      "This page is made from the table of keys by `lode recipe reference`; do not edit it by hand.\n\n"
      "A recipe is a flat YAML file of `key: value` lines; `key=value` on the command line wins over it. The "
      "names are "
      "LLaMA-Factory's, then Hugging Face's; other tools' names are accepted, and lode says its own name "
      "once. Blocks are "
      "written with dots on the command line (`lr_scheduler_kwargs.min_lr=1e-5`). An unknown key, a value of "
      "the wrong type "
      "or out of range and options that contradict each other are errors, all listed at once, before "
      "anything is written. "
      "`null` means the default.\n\n"
      "Meanings that other tools do not share:\n\n"
      "- With `packing`, `per_device_train_batch_size` counts rows of `cutoff_len` packed tokens; without "
      "it, samples. "
      "Nothing is padded either way.\n"
      "- Documents packed by best fit never see each other, as with LLaMA-Factory's `neat_packing`.\n"
      "- `training.checkpoint.interval_steps` is `save_steps`.\n"
      "- `batch_size` is `per_device_train_batch_size`, not the batch of all devices and accumulated "
      "steps.\n";
  std::string last;
  for (const Key& key : recipe_keys()) {
    if (key.support != Key::Support::full) continue;
    if (key.group != last) {
      text += format(
          "\n## {}\n\n| key | value | default | meaning | other names | other defaults |\n"
          "| --- | --- | --- | --- | --- | --- |\n",
          key.group);
    }
    last = key.group;
    text += format("| `{}` | {} | {} | {} | {} | {} |\n", key.name, type_text(key), default_text(key),
                   key.doc, aliases_text(key, "`"), other_defaults_text(key));
  }
  text +=
      "\n## Accepted without effect\n\nSaid once at start.\n\n| key | why | other names |\n| --- | --- | --- "
      "|\n";
  for (const Key& key : recipe_keys()) {
    if (key.support != Key::Support::no_effect) continue;
    text += format("| `{}` | {} | {} |\n", key.name, key.no_effect_because, aliases_text(key, "`"));
  }
  text +=
      "\n## Not supported yet\n\nAn error (exit code 2), unless the value asks for nothing: `false`, `none`, "
      "`null`, or "
      "the one in brackets.\n\n";
  for (const Key& key : recipe_keys()) {
    if (key.support != Key::Support::not_yet) continue;
    text += format("- `{}`{}\n", key.name,
                   key.asks_for_nothing.empty() ? "" : format(" (`{}`)", key.asks_for_nothing.front()));
  }
  for (const Key& key : recipe_keys()) {
    if (key.not_yet.empty()) continue;
    text += format("- `{}`:", key.name);
    for (std::size_t i = 0; i < key.not_yet.size(); ++i) {
      text += format("{} `{}`", i == 0 ? "" : ",", key.not_yet[i]);
    }
    text += "\n";
  }
  return text;
}

namespace {

bool is_glob(const std::string& path) {
  return path.find_first_of("*?[") != std::string::npos;
}

// "" when a data set of chats is there: a name in dataset_info.json, or files.
std::string chat_data_problem(FileSystem& files, const Recipe& recipe, std::string_view key,
                              const std::string& entry) {
  try {
    find_data_sets(files, recipe.dataset_dir, {entry});
    return "";
  } catch (const Error& error) {
    return format("\n  {}: {}", key, error.what());
  }
}

}  // namespace

void require_recipe_files(FileSystem& files, const Recipe& recipe) {
  std::string missing;
  const auto check = [&](std::string_view key, const std::string& path, std::string_view hint) {
    if (path.empty() || is_glob(path) || files.exists(path)) return;
    missing += format("\n  {}: {}{}", key, path, hint);
  };
  const auto check_data = [&](std::string_view key, const std::vector<std::string>& entries) {
    if (recipe.stage == Recipe::Stage::sft) {
      for (const std::string& entry : entries) missing += chat_data_problem(files, recipe, key, entry);
      return;
    }
    for (const std::string& path : recipe.data_paths(entries)) {
      const std::string registry =
          join_path(recipe.dataset_dir.empty() ? "." : recipe.dataset_dir, "dataset_info.json");
      const bool has_registry = path.find('.') == std::string::npos && files.exists(registry);
      check(key, path,
            has_registry ? " (names from dataset_info.json are read with stage: sft; give the file's path)"
                         : "");
    }
  };
  if (!looks_like_hub_id(recipe.model_name_or_path))
    check("model_name_or_path", recipe.model_name_or_path, "");
  if (!looks_like_hub_id(recipe.tokenizer_name_or_path)) {
    check("tokenizer_name_or_path", recipe.tokenizer_name_or_path, "");
  }
  check_data("dataset", recipe.dataset);
  for (const Recipe::EvalSet& set : recipe.eval_dataset) check_data("eval_dataset", set.paths);
  if (recipe.resume_from_checkpoint != "latest") {
    check("resume_from_checkpoint", recipe.resume_from_checkpoint, "");
  }
  if (missing.empty()) return;
  const std::string name = recipe.source_file.empty() ? "the recipe" : recipe.source_file;
  fail(ErrorKind::data, "{} names files that are not there (relative paths start from {}):{}", name,
       recipe.dataset_dir.empty() ? "the working directory"
                                  : "dataset_dir for data, the working directory otherwise",
       missing);
}

}  // namespace lode
