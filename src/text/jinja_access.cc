// Attributes, items and arithmetic.
#include <algorithm>
#include <cmath>

#include "text/jinja_interpreter.h"

namespace lode::jinja {

Value Interpreter::get_attribute(const Value& object, const std::string& name) {
  if (object.is_undefined()) {
    error("\"{}\" is undefined, so it has no \"{}\"", std::get<Undefined>(object.storage()).name, name);
  }
  if (has_method(object, name)) {
    return Function([object, name](Interpreter& interpreter, Arguments& arguments) {
      return call_method(interpreter, object, name, arguments);
    });
  }
  if (object.is_dict()) {
    if (const Value* value = object.dict().find(name)) return *value;
  } else if (object.is<Namespace*>()) {
    for (const auto& [key, value] : std::get<Namespace*>(object.storage())->fields) {
      if (key == name) return value;
    }
  } else if (object.is<const Loop*>()) {
    return loop_attribute(*std::get<const Loop*>(object.storage()), name);
  }
  return Value::undefined(name);
}

Value Interpreter::loop_attribute(const Loop& loop, const std::string& name) {
  const auto& items = *loop.items;
  const auto index = static_cast<std::int64_t>(loop.index), size = static_cast<std::int64_t>(items.size());
  if (name == "index0") return index;
  if (name == "index") return index + 1;
  if (name == "revindex0") return size - index - 1;
  if (name == "revindex") return size - index;
  if (name == "length") return size;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == size;
  if (name == "depth") return std::int64_t{1};  // no recursive loops
  if (name == "depth0") return std::int64_t{0};
  if (name == "previtem") return index > 0 ? items[loop.index - 1] : Value::undefined("loop.previtem");
  if (name == "nextitem") return index + 1 < size ? items[loop.index + 1] : Value::undefined("loop.nextitem");
  if (name != "cycle") return Value::undefined("loop." + name);
  return Function([at = loop.index](Interpreter& interpreter, Arguments& arguments) {
    if (arguments.positional.empty()) interpreter.error("loop.cycle needs values");
    return arguments.positional[at % arguments.positional.size()];
  });
}

Value Interpreter::get_item(const Value& object, const Value& key) {
  if (object.is_undefined()) {
    error("\"{}\" is undefined, so it has no items", std::get<Undefined>(object.storage()).name);
  }
  if (object.is_dict()) {
    step(static_cast<std::int64_t>(object.dict().items.size() / 8));
    if (const Value* value = object.dict().find(key)) return *value;
  } else if ((object.is_list() || object.is_string()) && key.is_integral()) {
    std::vector<std::size_t> offsets;
    if (object.is_string()) {
      scan(object.text().size());
      offsets = character_offsets(object.text().bytes());
    }
    const auto size =
        static_cast<std::int64_t>(object.is_string() ? offsets.size() - 1 : object.list().items.size());
    const std::int64_t at = key.integer() < 0 ? key.integer() + size : key.integer();
    if (at < 0 || at >= size) return Value::undefined("item " + std::to_string(key.integer()));
    const auto index = static_cast<std::size_t>(at);
    if (object.is_list()) return object.list().items[index];
    return make(object.text().slice(offsets[index], offsets[index + 1]));
  }
  if (key.is_string()) return get_attribute(object, key.text().bytes());
  return Value::undefined("an item");
}

Value Interpreter::binary(const std::string& op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return arithmetic(op, a, b);
  if (op == "+" && a.is_string() && b.is_string()) {
    const bool markup = a.text().markup() || b.text().markup();
    reserve((a.text().memory() + b.text().memory()) * (markup ? 5 : 1));
    Text text = markup && !a.text().markup() ? escape_html(a.text()) : a.text();
    text.append(markup && !b.text().markup() ? escape_html(b.text()) : b.text());
    if (markup) text.set_markup();
    return text;
  }
  if (op == "+" && a.is_list() && b.is_list() && a.list().shape == b.list().shape) {
    std::vector<Value> items = a.list().items;
    items.insert(items.end(), b.list().items.begin(), b.list().items.end());
    return make_list(std::move(items), a.list().shape);
  }
  if (op == "*" && b.is_integral()) return repeat(a, b.integer());
  if (op == "*" && a.is_integral()) return repeat(b, a.integer());
  if (op == "%" && a.is_string()) return format_percent(a.text(), b);
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) error("\"{}\" is undefined", std::get<Undefined>(value->storage()).name);
  }
  error("{} {} {} has no meaning", a.type_name(), op, b.type_name());
}

Value Interpreter::repeat(const Value& value, std::int64_t times) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
  if (!value.is_string() && !value.is_list()) error("a {} cannot be repeated", value.type_name());
  const std::size_t size =
      value.is_string() ? value.text().memory() : value.list().items.size() * sizeof(Value);
  if (size != 0 && count > limits_.bytes / size) reserve(SIZE_MAX);
  reserve(count * size);
  if (value.is_string()) {
    Text text;
    for (std::size_t i = 0; i < count && size != 0; ++i) text.append(value.text());
    return text;
  }
  std::vector<Value> items;
  for (std::size_t i = 0; i < count && size != 0; ++i) {
    items.insert(items.end(), value.list().items.begin(), value.list().items.end());
  }
  return make_list(std::move(items), value.list().shape);
}

Value Interpreter::arithmetic(const std::string& op, const Value& a, const Value& b) {
  if (op == "/") {
    if (b.number() == 0) error("division by zero");
    return a.number() / b.number();
  }
  if (a.is_integral() && b.is_integral() && !(op == "**" && b.integer() < 0)) {
    return integer_arithmetic(op, a.integer(), b.integer());
  }
  const double x = a.number(), y = b.number();
  if (op == "+") return x + y;
  if (op == "-") return x - y;
  if (op == "*") return x * y;
  if (op == "**") return std::pow(x, y);
  if (y == 0) error("division by zero");
  if (op == "//") return std::floor(x / y);
  const double rest = std::fmod(x, y);
  return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

Value Interpreter::integer_arithmetic(const std::string& op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else if (op == "**") {
    result = 1;
    for (std::int64_t i = 0; i < b && !overflow && a != 1; ++i) {
      step();
      overflow = __builtin_mul_overflow(result, a, &result);
    }
  } else {
    if (b == 0) error("division by zero");
    if (b == -1) return op == "//" ? integer_arithmetic("-", 0, a) : Value(std::int64_t{0});
    const std::int64_t rest = a % b;
    const bool down = rest != 0 && (rest < 0) != (b < 0);
    result = op == "//" ? a / b - (down ? 1 : 0) : rest + (down ? b : 0);
  }
  if (overflow) error("the result of {} {} {} is too large", a, op, b);
  return result;
}

// The %s, %d, %r and %% of printf-style formatting.
Value Interpreter::format_percent(const Text& pattern, const Value& values) {
  const bool tuple = values.is_list() && values.list().shape == List::Shape::tuple;
  const std::vector<Value> items = tuple ? values.list().items : std::vector<Value>{values};
  const std::string& bytes = pattern.bytes();
  Text text;
  std::size_t next = 0, begin = 0;
  for (std::size_t at = bytes.find('%'); at != std::string::npos; at = bytes.find('%', begin)) {
    text.append(pattern, begin, at);
    const char kind = at + 1 < bytes.size() ? bytes[at + 1] : '\0';
    begin = at + 2;
    if (kind == '%') {
      text.append("%");
      continue;
    }
    if (next >= items.size()) error("\"%\" has too few values");
    const Value& value = items[next++];
    bool ok = true;
    if (kind == 's') {
      text.append(to_text(value));
    } else if (kind == 'r') {
      append_repr(value, text, ok);
    } else if ((kind == 'd' || kind == 'i') && value.is_number() && std::abs(value.number()) < 9e18) {
      text.append(
          std::to_string(value.is<double>() ? static_cast<std::int64_t>(value.number()) : value.integer()));
    } else {
      error("\"%{}\" is not supported for a {}", std::string_view(&kind, 1), value.type_name());
    }
    if (!ok) error("a {} cannot be printed", value.type_name());
  }
  if (next < items.size() && (tuple || !values.is_dict())) error("\"%\" has too many values");
  text.append(pattern, std::min(begin, bytes.size()), bytes.size());
  return make(std::move(text));
}

}  // namespace lode::jinja
