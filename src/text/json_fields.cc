#include "text/json_fields.h"

#include "core/fail.h"

namespace lode::text {
namespace {

[[noreturn]] void wrong_type(const Json& value, std::string_view key, std::string_view expected,
                             std::string_view where, const std::string& what) {
  fail(ErrorKind::data, "{}: {}: \"{}\" must be {}, not {}", what, where, key, expected, value.type_name());
}

}  // namespace

const Json& field(const Json& object, std::string_view key, std::string_view where, const std::string& what) {
  if (!object.is_object()) {
    fail(ErrorKind::data, "{}: {} must be an object, not {}", what, where, object.type_name());
  }
  const Json* value = object.find(key);
  if (value == nullptr) fail(ErrorKind::data, "{}: {}: the key \"{}\" is missing", what, where, key);
  return *value;
}

std::string type_of(const Json& object, std::string_view where, const std::string& what) {
  return string_field(object, "type", where, what);
}

std::string string_field(const Json& object, std::string_view key, std::string_view where,
                         const std::string& what) {
  const Json& value = field(object, key, where, what);
  if (!value.is_string()) wrong_type(value, key, "a string", where, what);
  return value.as_string();
}

const Json::Array& array_field(const Json& object, std::string_view key, std::string_view where,
                               const std::string& what) {
  const Json& value = field(object, key, where, what);
  if (!value.is_array()) wrong_type(value, key, "an array", where, what);
  return value.as_array();
}

bool bool_field(const Json& object, std::string_view key, bool fallback, std::string_view where,
                const std::string& what) {
  const Json* value = object.find(key);
  if (value == nullptr || value->is_null()) return fallback;
  if (!value->is_bool()) wrong_type(*value, key, "true or false", where, what);
  return value->as_bool();
}

std::string optional_string_field(const Json& object, std::string_view key, std::string_view where,
                                  const std::string& what) {
  const Json* value = object.find(key);
  if (value == nullptr || value->is_null()) return {};
  if (!value->is_string()) wrong_type(*value, key, "a string or null", where, what);
  return value->as_string();
}

std::int64_t int_field(const Json& object, std::string_view key, std::string_view where,
                       const std::string& what) {
  const Json& value = field(object, key, where, what);
  if (!value.is_int()) wrong_type(value, key, "an integer", where, what);
  return value.as_int();
}

TextPattern pattern_field(const Json& object, std::string_view where, const std::string& what) {
  const Json& pattern = field(object, "pattern", where, what);
  const Json* regex = pattern.find("Regex");
  const Json* text = regex != nullptr ? regex : pattern.find("String");
  if (text == nullptr || !text->is_string() || text->as_string().empty()) {
    fail(ErrorKind::data, "{}: {}: pattern must be {{\"Regex\": text}} or {{\"String\": text}}, not empty",
         what, where);
  }
  return {text->as_string(), regex != nullptr};
}

std::string prefix_scheme_field(const Json& object, std::string_view where, const std::string& what) {
  std::string scheme = optional_string_field(object, "prepend_scheme", where, what);
  if (scheme.empty()) return bool_field(object, "add_prefix_space", true, where, what) ? "always" : "never";
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    fail(ErrorKind::data, "{}: {}: prepend_scheme must be always, first or never, not \"{}\"", what, where,
         scheme);
  }
  return scheme;
}

}  // namespace lode::text
