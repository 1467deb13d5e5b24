#include "train/recipe.h"

#include <algorithm>
#include <map>

#include "core/fail.h"
#include "train/keys.h"
#include "train/recipe_checks.h"
#include "train/yaml.h"

namespace lode {
namespace {

// Blocks of keys become dotted names: {training: {checkpoint: {interval_steps: 5}}} is
// training.checkpoint.interval_steps.
void flatten(const YamlNode& map, const std::string& prefix, const std::string& source,
             RecipeReading& reading, std::vector<RecipeEntry>& entries) {
  for (std::size_t i = 0; i < map.keys.size(); ++i) {
    const YamlNode& value = map.items[i];
    const std::string name = prefix + map.keys[i];
    const KeyMatch match = find_key(name);
    const bool block = value.kind == YamlNode::Kind::map && !(match.key && match.key->takes_map);
    const std::string where = format("{}:{}", source, map.key_lines[i]);
    if (block && is_key_group(name)) {
      flatten(value, name + ".", source, reading, entries);
    } else if (!match.key && is_key_group(name)) {
      if (!value.is_null()) {
        reading.problems.push_back(
            format("{}: {}: expected a block of keys, found {}", where, name, value.describe()));
      }
    } else {
      entries.push_back({name, where, match.key, match.alias, value});
    }
  }
}

void add_override(const std::string& text, RecipeReading& reading, std::vector<RecipeEntry>& entries) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos) {
    reading.problems.push_back(format("command line: expected key=value, found '{}'", text));
    return;
  }
  const std::string name = text.substr(0, equals);
  try {
    // Read as the value of a map, where YAML's rules for plain text are the ones people know; a glob is no
    // alias.
    const std::string value = text.substr(equals + 1);
    const std::string yaml = value.starts_with('*') ? yaml_quote(value) : value;
    YamlNode map = parse_yaml("? value\n: " + yaml + "\n", format("command line, {}", name));
    map.keys = {name};
    std::vector<RecipeEntry> read;
    flatten(map, "", "command line", reading, read);
    for (RecipeEntry& entry : read) {
      entry.where = "command line";
      entries.push_back(std::move(entry));
    }
  } catch (const Error& e) {
    reading.problems.push_back(e.what());
  }
}

std::string shown_name(const RecipeEntry& entry) {
  if (!entry.alias) return entry.name;
  return format("{} ({})", entry.name, entry.key->name);
}

// Drops unknown names and repetitions, each a problem.
std::vector<RecipeEntry> known_entries(std::vector<RecipeEntry> entries, RecipeReading& reading) {
  std::vector<RecipeEntry> known;
  for (RecipeEntry& entry : entries) {
    if (!entry.key) {
      const std::string nearest = nearest_key(entry.name);
      reading.problems.push_back(format(
          "{}: unknown key {}{}", entry.where, entry.name,
          nearest.empty() ? " (`lode recipe schema` lists all keys)" : ", did you mean " + nearest + "?"));
      continue;
    }
    const auto before = std::ranges::find(known, entry.key, &RecipeEntry::key);
    if (before == known.end()) {
      known.push_back(std::move(entry));
    } else if (before->name == entry.name) {
      reading.problems.push_back(
          format("{}: {} is given twice (before at {})", entry.where, entry.name, before->where));
    } else {
      reading.problems.push_back(format("{}: {} and {} (at {}) both set {}; keep one", entry.where,
                                        entry.name, before->name, before->where, entry.key->name));
    }
  }
  return known;
}

bool asks_for_nothing(const Key& key, const YamlNode& value) {
  if (value.is_null()) return true;
  if (value.is_scalar()) {
    if (value.as_bool() == false || value.text == "none" || value.text.empty()) return true;
    return std::ranges::find(key.asks_for_nothing, value.text) != key.asks_for_nothing.end();
  }
  return value.items.empty();
}

void apply(const RecipeEntry& entry, Recipe& recipe, RecipeReading& reading) {
  const Key& key = *entry.key;
  if (key.support == Key::Support::no_effect) {
    recipe.notices.push_back(format("{} has no effect: {}", entry.name, key.no_effect_because));
    return;
  }
  if (key.support == Key::Support::not_yet) {
    if (asks_for_nothing(key, entry.value)) return;
    reading.problems.push_back(format("{}: not supported yet by lode: {}", entry.where, entry.name));
    return;
  }
  if (entry.value.is_null()) return;  // as if it was not there
  try {
    key.set(recipe, entry.value);
    reading.set.emplace(key.name, entry.where);
  } catch (const Error& e) {
    reading.problems.push_back(format("{}: {}: {}", entry.where, shown_name(entry), e.what()));
    reading.failed.insert(key.name);
  }
  if (entry.alias) {
    recipe.notices.push_back(
        format("{} is read as {} (the former is the name in {})", entry.name, key.name, entry.alias->tool));
    reading.tools.insert(entry.alias->tool);
  }
}

void note_differing_defaults(Recipe& recipe, const RecipeReading& reading) {
  for (const std::string& tool : reading.tools) {
    std::string list;
    for (const Key& key : recipe_keys()) {
      if (reading.set.contains(key.name)) continue;
      for (const KeyAlias& other : key.other_defaults) {
        if (other.tool != tool) continue;
        list += format("{}{} {} ({})", list.empty() ? "" : ", ", key.name, json_as_text(key.get(recipe)),
                       other.name);
      }
    }
    if (!list.empty()) recipe.notices.push_back(format("defaults that are not {}'s: {}", tool, list));
  }
}

Recipe build(std::vector<RecipeEntry> from_file, std::vector<RecipeEntry> from_line, RecipeReading reading,
             const std::string& source) {
  std::vector<RecipeEntry> entries = known_entries(std::move(from_file), reading);
  for (RecipeEntry& entry : known_entries(std::move(from_line), reading)) {
    const auto replaced = std::ranges::find(entries, entry.key, &RecipeEntry::key);
    if (replaced == entries.end()) {
      entries.push_back(std::move(entry));
    } else {
      *replaced = std::move(entry);
    }
  }
  Recipe recipe;
  recipe.source_file = source;
  reading.tools.insert(std::string(kHuggingFace));
  for (const RecipeEntry& entry : entries) {
    reading.given.emplace(entry.key->name, &entry);
    apply(entry, recipe, reading);
  }
  check_recipe(recipe, reading);
  if (reading.problems.empty()) {
    note_differing_defaults(recipe, reading);
    return recipe;
  }
  std::string message =
      reading.problems.size() == 1 ? "" : format("{} problems in the recipe:", reading.problems.size());
  for (const std::string& problem : reading.problems) message += (message.empty() ? "" : "\n  ") + problem;
  throw Error(ErrorKind::usage, message);
}

}  // namespace

Recipe recipe_from_text(const std::string& yaml, const std::string& name,
                        std::span<const std::string> overrides) {
  const YamlNode root = parse_yaml(yaml, name);
  if (root.kind != YamlNode::Kind::map && !root.is_null()) {
    fail(ErrorKind::usage, "{}:{}: expected lines of `key: value`, found {}", name, root.line,
         root.describe());
  }
  RecipeReading reading;
  std::vector<RecipeEntry> from_file, from_line;
  flatten(root, "", name, reading, from_file);
  for (const std::string& text : overrides) add_override(text, reading, from_line);
  return build(std::move(from_file), std::move(from_line), std::move(reading), name);
}

Recipe load_recipe(FileSystem& files, const std::string& path, std::span<const std::string> overrides) {
  if (!files.exists(path)) fail(ErrorKind::data, "{}: no such recipe", path);
  if (files.is_directory(path)) {
    fail(ErrorKind::data, "{}: is a folder; give the recipe itself (a run's is {})", path,
         join_path(path, "recipe.yaml"));
  }
  constexpr std::uint64_t kMaxBytes = 1 << 20;
  if (files.size(path) > kMaxBytes)
    fail(ErrorKind::usage, "{}: too large for a recipe (at most 1 MiB)", path);
  return recipe_from_text(files.read(path), path, overrides);
}

Recipe recipe_from_overrides(std::span<const std::string> overrides) {
  RecipeReading reading;
  std::vector<RecipeEntry> from_line;
  for (const std::string& text : overrides) add_override(text, reading, from_line);
  return build({}, std::move(from_line), std::move(reading), "");
}

Recipe recipe_from_arguments(FileSystem& files, std::span<const std::string> arguments) {
  if (arguments.empty()) fail(ErrorKind::usage, "expected a recipe's path, or key=value");
  const bool first_is_path = arguments[0].find('=') == std::string::npos || files.exists(arguments[0]);
  return first_is_path ? load_recipe(files, arguments[0], arguments.subspan(1))
                       : recipe_from_overrides(arguments);
}

std::vector<std::string> Recipe::data_paths(std::span<const std::string> entries) const {
  std::vector<std::string> paths;
  for (const std::string& entry : entries) {
    const bool relative = !dataset_dir.empty() && !entry.starts_with('/');
    paths.push_back(relative ? join_path(dataset_dir, entry) : entry);
  }
  return paths;
}

std::string Recipe::separator_text() const {
  if (document_separator == "auto" || document_separator == "file") return "";
  return document_separator == "record" ? "\n" : document_separator;
}

std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char next = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
    const auto known = std::string_view("ntr\\").find(next);
    if (next == '\0' || known == std::string_view::npos) {
      out += text[i];
    } else {
      out += "\n\t\r\\"[known];
      ++i;
    }
  }
  return out;
}

}  // namespace lode
