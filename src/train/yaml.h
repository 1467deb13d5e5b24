// Reading YAML into a small tree that remembers lines. Bounded: no anchors, aliases or tags of applications,
// limited size, depth and number of nodes; exactly one document.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lode {

struct YamlNode {
  enum class Kind { null, scalar, list, map };
  Kind kind = Kind::null;
  int line = 0;                   // from 1
  std::string text;               // scalar
  bool plain = false;             // scalar without quotes: may be a number or a boolean
  std::vector<YamlNode> items;    // list elements, or map values
  std::vector<std::string> keys;  // map: the key of each item; may repeat
  std::vector<int> key_lines;

  // A plain scalar that reads as a boolean (true/false/yes/no/on/off), an integer, or a finite number;
  // numbers may be written 1e-5, 1_000 or .5.
  std::optional<bool> as_bool() const;
  std::optional<long long> as_int() const;  // 1e3 too
  std::optional<double> as_number() const;
  bool is_null() const { return kind == Kind::null; }
  bool is_scalar() const { return kind == Kind::scalar; }
  std::string describe() const;  // for messages: "the text 'abc'", "a list", ...
};

// Throws Error(usage) as "name:line: reason". Empty text gives an empty map.
YamlNode parse_yaml(std::string_view text, const std::string& name);

// The scalar as YAML that reads back as this text (quoted where needed).
std::string yaml_quote(std::string_view text);

}  // namespace lode
