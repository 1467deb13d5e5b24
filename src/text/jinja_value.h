// Values of the template language. They behave as Python's do.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/json.h"
#include "text/jinja_text.h"

namespace lode::jinja {

class Interpreter;
class Value;
struct List;
struct Dict;
struct Namespace;
struct Macro;
struct Loop;
struct Arguments;

struct Undefined {
  std::string name;  // what was looked up, for messages
};
struct None {};
// A function or a bound method: called with the values given.
using Function = std::function<Value(Interpreter&, Arguments&)>;

// Strings, lists and dicts are shared and immutable. Namespaces, macros and loops belong to the interpreter,
// so that cycles through them cannot leak.
class Value {
 public:
  using Storage = std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const Text>,
                               std::shared_ptr<const List>, std::shared_ptr<const Dict>,
                               std::shared_ptr<const Function>, Namespace*, const Macro*, const Loop*>;

  Value() : storage_(None{}) {}
  Value(Storage storage) : storage_(std::move(storage)) {}
  Value(bool v) : storage_(v) {}
  Value(std::int64_t v) : storage_(v) {}
  Value(double v) : storage_(v) {}
  Value(Text v) : storage_(std::make_shared<const Text>(std::move(v))) {}
  Value(Function v) : storage_(std::make_shared<const Function>(std::move(v))) {}
  Value(List v);
  Value(Dict v);
  static Value undefined(std::string name) { return Storage(Undefined{std::move(name)}); }
  static Value string(std::string_view v) { return Text(std::string(v)); }

  const Storage& storage() const { return storage_; }
  template <class T>
  bool is() const {
    return std::holds_alternative<T>(storage_);
  }
  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }
  bool is_string() const { return is<std::shared_ptr<const Text>>(); }
  bool is_list() const { return is<std::shared_ptr<const List>>(); }
  bool is_dict() const { return is<std::shared_ptr<const Dict>>(); }
  bool is_int() const { return is<std::int64_t>(); }
  bool is_integral() const { return is<std::int64_t>() || is<bool>(); }
  bool is_number() const { return is_integral() || is<double>(); }

  const Text& text() const { return *std::get<std::shared_ptr<const Text>>(storage_); }
  const List& list() const { return *std::get<std::shared_ptr<const List>>(storage_); }
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(storage_); }
  std::int64_t integer() const;  // of an int or bool
  double number() const;         // of an int, bool or float

  std::string_view type_name() const;  // as Python names it
  int depth() const;                   // 0 unless list or dict
  bool truthy() const;

 private:
  Storage storage_;
};

struct List {
  enum class Shape { list, tuple, generator };  // a generator is always true and has no length
  std::vector<Value> items;
  Shape shape = Shape::list;
  int depth = 1;
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;
  int depth = 1;
  std::int32_t message = -1;  // the message that this dict is

  const Value* find(std::string_view key) const;
  const Value* find(const Value& key) const;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> fields;
};

struct Loop {
  const std::vector<Value>* items = nullptr;
  std::size_t index = 0;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  // The argument at a position or of a name; nullptr when absent.
  const Value* get(std::size_t position, std::string_view name) const;
};

bool equal(const Value& a, const Value& b);
// Both numbers, both strings, or both lists; nullopt otherwise. Negative, zero, positive.
bool comparable(const Value& a, const Value& b);
int compare(const Value& a, const Value& b);

// Python's repr and str. `ok` turns false when a value has no stable form (macro, namespace, ...).
void append_repr(const Value& value, Text& out, bool& ok);
std::string repr_float(double value);

struct DumpOptions {
  bool ensure_ascii = false, sort_keys = false;
  bool indented = false;
  std::string indent, item_separator = ", ", key_separator = ": ";
};
// As json.dumps; an empty string, or what has no JSON form.
std::string append_json(const Value& value, const DumpOptions& options, Text& out, int level = 0);

// Strings get `label`; lists and dicts become values. The messages themselves are marked by the caller.
Value from_json(const Json& json, Label label, std::int32_t message = -1);

inline constexpr int kMaxValueDepth = 100;

}  // namespace lode::jinja
