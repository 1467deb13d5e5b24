#include "text/jinja_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace lode::jinja {
namespace {

template <class Items, class Get>
int depth_of(const Items& items, Get get) {
  int depth = 0;
  for (const auto& item : items) depth = std::max(depth, get(item));
  return depth + 1;
}

template <class T>
int sign(const T& a, const T& b) {
  return a < b ? -1 : b < a ? 1 : 0;
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    const Value* other = b.find(key);
    if (other == nullptr || !equal(value, *other)) return false;
  }
  return true;
}

}  // namespace

Value::Value(List v) {
  v.depth = depth_of(v.items, [](const Value& item) { return item.depth(); });
  storage_ = std::make_shared<const List>(std::move(v));
}

Value::Value(Dict v) {
  v.depth = depth_of(v.items, [](const auto& item) { return item.second.depth(); });
  storage_ = std::make_shared<const Dict>(std::move(v));
}

std::int64_t Value::integer() const {
  const bool* b = std::get_if<bool>(&storage_);
  return b != nullptr ? *b : std::get<std::int64_t>(storage_);
}

double Value::number() const {
  const double* d = std::get_if<double>(&storage_);
  return d != nullptr ? *d : static_cast<double>(integer());
}

std::string_view Value::type_name() const {
  static constexpr std::string_view kNames[] = {"undefined", "None",      "bool",  "int",
                                                "float",     "str",       "list",  "dict",
                                                "function",  "namespace", "macro", "loop"};
  if (is_list() && list().shape == List::Shape::tuple) return "tuple";
  if (is_list() && list().shape == List::Shape::generator) return "generator";
  return kNames[storage_.index()];
}

int Value::depth() const {
  return is_list() ? list().depth : is_dict() ? dict().depth : 0;
}

bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is<double>()) return std::get<double>(storage_) != 0;
  if (is_integral()) return integer() != 0;
  if (is_string()) return !text().empty();
  if (is_list()) return list().shape == List::Shape::generator || !list().items.empty();
  if (is_dict()) return !dict().items.empty();
  return true;
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : items) {
    if (name.is_string() && name.text().bytes() == key) return &value;
  }
  return nullptr;
}

const Value* Dict::find(const Value& key) const {
  if (key.is_string()) return find(key.text().bytes());
  for (const auto& [name, value] : items) {
    if (equal(name, key)) return &value;
  }
  return nullptr;
}

const Value* Arguments::get(std::size_t position, std::string_view name) const {
  if (position < positional.size()) return &positional[position];
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
    return a.number() == b.number();
  }
  if (a.storage().index() != b.storage().index()) return false;
  if (a.is_undefined() || a.is_none()) return true;
  if (a.is_string()) return a.text().bytes() == b.text().bytes();
  if (a.is_list()) {
    if ((a.list().shape == List::Shape::tuple) != (b.list().shape == List::Shape::tuple)) return false;
    return std::ranges::equal(a.list().items, b.list().items, equal);
  }
  if (a.is_dict()) return equal_dicts(a.dict(), b.dict());
  if (a.is<std::shared_ptr<const Function>>()) return false;
  if (a.is<Namespace*>()) return std::get<Namespace*>(a.storage()) == std::get<Namespace*>(b.storage());
  if (a.is<const Macro*>()) return std::get<const Macro*>(a.storage()) == std::get<const Macro*>(b.storage());
  return std::get<const Loop*>(a.storage()) == std::get<const Loop*>(b.storage());
}

bool comparable(const Value& a, const Value& b) {
  if (a.is_list() && b.is_list()) {
    const auto& x = a.list().items;
    const auto& y = b.list().items;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(x[i], y[i])) return comparable(x[i], y[i]);
    }
    return a.list().shape == b.list().shape;
  }
  return (a.is_number() && b.is_number()) || (a.is_string() && b.is_string());
}

int compare(const Value& a, const Value& b) {
  if (a.is_string()) return sign(a.text().bytes(), b.text().bytes());
  if (a.is_integral() && b.is_integral()) return sign(a.integer(), b.integer());
  if (a.is_number()) return sign(a.number(), b.number());
  const auto& x = a.list().items;
  const auto& y = b.list().items;
  for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (!equal(x[i], y[i])) return compare(x[i], y[i]);
  }
  return sign(x.size(), y.size());
}

std::string repr_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  std::string_view shown(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t e = shown.find('e');
  int exponent = 0;
  const std::size_t skip = shown[e + 1] == '+' ? 2 : 1;
  std::from_chars(shown.data() + e + skip, shown.data() + shown.size(), exponent);
  std::string digits, result;
  for (const char c : shown.substr(0, e)) {
    if (c == '-') result += c;
    if (c >= '0' && c <= '9') digits += c;
  }
  if (exponent < -4 || exponent >= 16) {
    result += digits[0];
    if (digits.size() > 1) result += "." + digits.substr(1);
    const std::string power = std::to_string(std::abs(exponent));
    return result + "e" + (exponent < 0 ? "-" : "+") + (power.size() < 2 ? "0" : "") + power;
  }
  if (exponent < 0) return result + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return result + digits + std::string(whole - digits.size(), '0') + ".0";
  return result + digits.substr(0, whole) + "." + digits.substr(whole);
}

Value from_json(const Json& json, Label label, std::int32_t message) {
  if (json.is_null()) return Value();
  if (json.is_bool()) return json.as_bool();
  if (json.is_int()) return json.as_int();
  if (json.is_number()) return json.as_double();
  if (json.is_string()) return Text(json.as_string(), label);
  if (json.is_array()) {
    List list;
    for (const Json& item : json.as_array()) list.items.push_back(from_json(item, label));
    return list;
  }
  Dict dict;
  dict.message = message;
  for (const auto& [key, item] : json.as_object()) {
    // The role is part of the format, not what the message says.
    const bool role = message >= 0 && key == "role";
    dict.items.emplace_back(Value::string(key), from_json(item, role ? Label{} : label));
  }
  return dict;
}

}  // namespace lode::jinja
