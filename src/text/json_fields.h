// Fields of tokenizer.json's components, with errors that name file, component and key.
#pragma once

#include <string>
#include <string_view>

#include "core/json.h"

namespace lode::text {

// `where` names the component, `what` the file. All throw Error(data).
const Json& field(const Json& object, std::string_view key, std::string_view where, const std::string& what);
std::string type_of(const Json& object, std::string_view where, const std::string& what);
std::string string_field(const Json& object, std::string_view key, std::string_view where,
                         const std::string& what);
const Json::Array& array_field(const Json& object, std::string_view key, std::string_view where,
                               const std::string& what);
// Absent or null: `fallback`.
bool bool_field(const Json& object, std::string_view key, bool fallback, std::string_view where,
                const std::string& what);
std::string optional_string_field(const Json& object, std::string_view key, std::string_view where,
                                  const std::string& what);  // empty when absent or null
std::int64_t int_field(const Json& object, std::string_view key, std::string_view where,
                       const std::string& what);

// "pattern": {"Regex": text} or {"String": text}, not empty.
struct TextPattern {
  std::string text;
  bool is_regex = false;
};
TextPattern pattern_field(const Json& object, std::string_view where, const std::string& what);

// Metaspace's "prepend_scheme" (always, first, never), or what the older "add_prefix_space" says.
std::string prefix_scheme_field(const Json& object, std::string_view where, const std::string& what);

}  // namespace lode::text
