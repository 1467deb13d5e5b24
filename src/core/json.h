// JSON values. Objects keep the order of their keys. Numbers without fraction or exponent that fit are
// integers.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lode {

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;  // null
  Json(std::nullptr_t) {}
  Json(bool v) : value_(v) {}
  Json(int v) : value_(static_cast<std::int64_t>(v)) {}
  Json(std::int64_t v) : value_(v) {}
  Json(std::uint64_t v) : value_(static_cast<std::int64_t>(v)) {}
  Json(double v) : value_(v) {}
  Json(std::string v) : value_(std::move(v)) {}
  Json(std::string_view v) : value_(std::string(v)) {}
  Json(const char* v) : value_(std::string(v)) {}
  Json(Array v) : value_(std::move(v)) {}
  static Json array() { return Json(Array{}); }
  static Json object() { return object({}); }
  static Json object(std::initializer_list<Member> members);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<std::int64_t>(value_); }
  bool is_number() const { return is_int() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  std::string_view type_name() const;  // "null", "boolean", "integer", "number", "string", "array", "object"

  // Throw Error(data) "expected X, found Y" on a value of another type.
  bool as_bool() const;
  std::int64_t as_int() const;
  double as_double() const;  // integers too
  const std::string& as_string() const;
  const Array& as_array() const;
  Array& as_array();
  const Object& as_object() const;
  Object& as_object();

  const Json* find(std::string_view key) const;  // nullptr when absent or not an object
  const Json& at(std::string_view key) const;    // throws Error(data) naming the key
  Json& operator[](std::string_view key);  // inserts null at the end when absent; null becomes an object
  void push_back(Json v);                  // null becomes an array
  std::size_t size() const;                // elements or members; 0 otherwise

  friend bool operator==(const Json&, const Json&) = default;

  // indent < 0: one line. Doubles print shortest round-trip; non-finite ones print as null.
  std::string dump(int indent = -1) const;

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object> value_;
};

struct JsonLimits {
  int max_depth = 64;
  bool unique_keys = true;              // a repeated key is an error
  std::int64_t max_values = INT64_MAX;  // bounds memory: at most about 300 bytes a value beside the text
};

// Throws Error(data) with `what` (a file name, or file:line), the byte position and the reason. Text must be
// UTF-8.
Json parse_json(std::string_view text, std::string_view what, JsonLimits limits = {});

}  // namespace lode
