// Looking up keys by the names people write.
#include <algorithm>

#include "train/keys.h"

namespace lode {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

KeyMatch find_key(std::string_view name) {
  for (const Key& key : recipe_keys()) {
    if (key.name == name) return {&key, nullptr};
  }
  for (const Key& key : recipe_keys()) {
    const auto alias = std::ranges::find(key.aliases, name, &KeyAlias::name);
    if (alias != key.aliases.end()) return {&key, &*alias};
  }
  return {};
}

bool is_key_group(std::string_view prefix) {
  const std::string start = std::string(prefix) + ".";
  return std::ranges::any_of(recipe_keys(), [&](const Key& key) {
    return key.name.starts_with(start) ||
           std::ranges::any_of(key.aliases, [&](const KeyAlias& a) { return a.name.starts_with(start); });
  });
}

std::string nearest_key(std::string_view name) {
  if (name.size() > 100) return "";
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, name.size() / 3) + 1;
  const auto consider = [&](const std::string& candidate, const std::string& canonical) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = canonical;
    }
  };
  for (const Key& key : recipe_keys()) {
    if (key.support != Key::Support::full) continue;
    consider(key.name, key.name);
    for (const KeyAlias& alias : key.aliases) consider(alias.name, key.name);
  }
  return best;
}

std::string json_as_text(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.as_string();
  if (!value.is_array()) {
    const std::string text = value.dump();
    return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
  }
  std::string text;
  for (const Json& item : value.as_array()) text += (text.empty() ? "" : ", ") + json_as_text(item);
  return text;
}

}  // namespace lode
