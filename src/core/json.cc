#include "core/json.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "core/fail.h"

namespace lode {
namespace {

// Builds a Json from parser events; keeps the path of open containers.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(std::string_view what, JsonLimits limits) : what_(what), limits_(limits) {}
  Json take() { return std::move(root_); }

  bool null() override { return leaf(Json()); }
  bool boolean(bool value) override { return leaf(value); }
  bool number_integer(number_integer_t value) override { return leaf(std::int64_t{value}); }
  bool number_unsigned(number_unsigned_t value) override {
    return value > INT64_MAX ? leaf(static_cast<double>(value)) : leaf(static_cast<std::int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return leaf(value); }
  bool string(string_t& value) override { return leaf(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (limits_.unique_keys && !open_.back().keys.insert(name).second) {
      fail(ErrorKind::data, "{}: the key \"{}\" appears twice in one object", what_, name.substr(0, kShown));
    }
    open_.back().key = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    std::string_view reason = error.what();
    if (const auto at = reason.find("- "); at != std::string_view::npos) reason.remove_prefix(at + 2);
    fail(ErrorKind::data, "{}: not valid JSON at byte {}: {}", what_, position, reason.substr(0, kShown));
  }

 private:
  struct Open {
    Json value;
    std::string key;  // of the member being read
    std::unordered_set<std::string> keys;
  };

  static constexpr std::size_t kShown = 200;  // a message quotes no more than this of the text

  bool leaf(Json value) {
    count();
    return put(std::move(value));
  }
  bool put(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (Json& parent = open_.back().value; parent.is_array()) {
      parent.as_array().push_back(std::move(value));
    } else {
      parent.as_object().emplace_back(std::move(open_.back().key), std::move(value));
    }
    return true;
  }
  void count() {
    if (++values_ > limits_.max_values) {
      fail(ErrorKind::data, "{}: JSON has more than {} values", what_, limits_.max_values);
    }
  }
  bool open(Json value) {
    if (static_cast<int>(open_.size()) >= limits_.max_depth) {
      fail(ErrorKind::data, "{}: JSON is nested deeper than {} levels", what_, limits_.max_depth);
    }
    count();
    open_.push_back({std::move(value), {}, {}});
    return true;
  }
  bool close() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    return put(std::move(value));
  }

  std::string_view what_;
  JsonLimits limits_;
  Json root_;
  std::vector<Open> open_;
  std::int64_t values_ = 0;
};

void write_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += format("\\u{:04x}", static_cast<int>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

void write_double(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char buffer[40];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  const std::string_view text(buffer, static_cast<std::size_t>(result.ptr - buffer));
  out += text;
  if (text.find_first_of(".en") == std::string_view::npos) out += ".0";
}

void write_break(std::string& out, int indent, int depth) {
  if (indent < 0) return;
  out += '\n';
  out.append(static_cast<std::size_t>(indent) * static_cast<std::size_t>(depth), ' ');
}

void write_value(std::string& out, const Json& value, int indent, int depth) {
  const std::string_view separator = indent < 0 ? ", " : ",";
  if (value.is_null()) {
    out += "null";
  } else if (value.is_bool()) {
    out += value.as_bool() ? "true" : "false";
  } else if (value.is_int()) {
    out += format("{}", value.as_int());
  } else if (value.is_number()) {
    write_double(out, value.as_double());
  } else if (value.is_string()) {
    write_string(out, value.as_string());
  } else if (value.is_array()) {
    out += '[';
    bool first = true;
    for (const Json& item : value.as_array()) {
      if (!first) out += separator;
      first = false;
      write_break(out, indent, depth + 1);
      write_value(out, item, indent, depth + 1);
    }
    if (!first) write_break(out, indent, depth);
    out += ']';
  } else {
    out += '{';
    bool first = true;
    for (const auto& [key, item] : value.as_object()) {
      if (!first) out += separator;
      first = false;
      write_break(out, indent, depth + 1);
      write_string(out, key);
      out += ": ";
      write_value(out, item, indent, depth + 1);
    }
    if (!first) write_break(out, indent, depth);
    out += '}';
  }
}

[[noreturn]] void wrong_type(std::string_view expected, const Json& found) {
  fail(ErrorKind::data, "expected {}, found {}", expected, found.type_name());
}

}  // namespace

Json Json::object(std::initializer_list<Member> members) {
  Json json;
  json.value_ = Object(members);
  return json;
}

std::string_view Json::type_name() const {
  static constexpr std::string_view kNames[] = {"null",   "boolean", "integer", "number",
                                                "string", "array",   "object"};
  return kNames[value_.index()];
}

bool Json::as_bool() const {
  if (!is_bool()) wrong_type("boolean", *this);
  return std::get<bool>(value_);
}

std::int64_t Json::as_int() const {
  if (!is_int()) wrong_type("integer", *this);
  return std::get<std::int64_t>(value_);
}

double Json::as_double() const {
  if (is_int()) return static_cast<double>(std::get<std::int64_t>(value_));
  if (!is_number()) wrong_type("number", *this);
  return std::get<double>(value_);
}

const std::string& Json::as_string() const {
  if (!is_string()) wrong_type("string", *this);
  return std::get<std::string>(value_);
}

const Json::Array& Json::as_array() const {
  if (!is_array()) wrong_type("array", *this);
  return std::get<Array>(value_);
}

Json::Array& Json::as_array() {
  if (!is_array()) wrong_type("array", *this);
  return std::get<Array>(value_);
}

const Json::Object& Json::as_object() const {
  if (!is_object()) wrong_type("object", *this);
  return std::get<Object>(value_);
}

Json::Object& Json::as_object() {
  if (!is_object()) wrong_type("object", *this);
  return std::get<Object>(value_);
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const auto& [name, value] : std::get<Object>(value_)) {
    if (name == key) return &value;
  }
  return nullptr;
}

const Json& Json::at(std::string_view key) const {
  if (!is_object()) wrong_type("object", *this);
  const Json* value = find(key);
  if (value == nullptr) fail(ErrorKind::data, "the key \"{}\" is missing", key);
  return *value;
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) value_ = Object{};
  Object& members = as_object();
  for (auto& [name, value] : members) {
    if (name == key) return value;
  }
  return members.emplace_back(std::string(key), Json()).second;
}

void Json::push_back(Json v) {
  if (is_null()) value_ = Array{};
  as_array().push_back(std::move(v));
}

std::size_t Json::size() const {
  if (is_array()) return std::get<Array>(value_).size();
  if (is_object()) return std::get<Object>(value_).size();
  return 0;
}

std::string Json::dump(int indent) const {
  std::string out;
  write_value(out, *this, indent, 0);
  return out;
}

Json parse_json(std::string_view text, std::string_view what, JsonLimits limits) {
  Builder builder(what, limits);
  try {
    nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorKind::data, "{}: not valid JSON: {}", what, error.what());
  }
  return builder.take();
}

}  // namespace lode
