// Expressions.
#include <algorithm>
#include <cmath>

#include "text/jinja_interpreter.h"

namespace lode::jinja {

namespace {
struct DepthGuard {
  int& depth;
  ~DepthGuard() { --depth; }
};
}  // namespace

Value Interpreter::evaluate(const Expr& expr) {
  if (++depth_ > limits_.depth) {
    --depth_;
    error("the template nests or calls itself deeper than {} levels", limits_.depth);
  }
  const DepthGuard guard{depth_};
  line_ = expr.line;
  step();
  switch (expr.kind) {
    case ExprKind::literal:
      return expr.value;
    case ExprKind::name: {
      const Value* value = find_name(expr.name);
      return value != nullptr ? *value : Value::undefined(expr.name);
    }
    case ExprKind::list:
    case ExprKind::tuple:
    case ExprKind::dict:
      return evaluate_collection(expr);
    case ExprKind::attribute:
      return get_attribute(evaluate(*expr.parts[0]), expr.name);
    case ExprKind::subscript: {
      const Value object = evaluate(*expr.parts[0]);
      return get_item(object, evaluate(*expr.parts[1]));
    }
    case ExprKind::slice:
      return evaluate_slice(expr);
    case ExprKind::call:
      return evaluate_call(expr);
    case ExprKind::filter:
      return evaluate_filter(expr, nullptr);
    case ExprKind::test:
      return evaluate_test(expr);
    case ExprKind::unary:
      return evaluate_unary(expr);
    case ExprKind::binary: {
      const Value left = evaluate(*expr.parts[0]);
      return binary(expr.name, left, evaluate(*expr.parts[1]));
    }
    case ExprKind::compare:
      return evaluate_compare(expr);
    case ExprKind::concat:
      return evaluate_concat(expr);
    case ExprKind::conditional:
      if (evaluate(*expr.parts[1]).truthy()) return evaluate(*expr.parts[0]);
      return expr.parts[2] != nullptr ? evaluate(*expr.parts[2])
                                      : Value::undefined("the value of an if without else");
    case ExprKind::logical_and: {
      Value left = evaluate(*expr.parts[0]);
      return left.truthy() ? evaluate(*expr.parts[1]) : left;
    }
    case ExprKind::logical_or: {
      Value left = evaluate(*expr.parts[0]);
      return left.truthy() ? left : evaluate(*expr.parts[1]);
    }
  }
  return Value();
}

Value Interpreter::evaluate_collection(const Expr& expr) {
  if (expr.kind != ExprKind::dict) {
    std::vector<Value> items;
    for (const Expr* part : expr.parts) items.push_back(evaluate(*part));
    return make_list(std::move(items), expr.kind == ExprKind::tuple ? List::Shape::tuple : List::Shape::list);
  }
  Dict dict;
  for (std::size_t i = 0; i < expr.parts.size(); i += 2) {
    Value key = evaluate(*expr.parts[i]);
    Value value = evaluate(*expr.parts[i + 1]);
    if (key.is_list() || key.is_dict()) error("a {} cannot be the key of a dict", key.type_name());
    const auto same =
        std::ranges::find_if(dict.items, [&](const auto& item) { return equal(item.first, key); });
    if (same == dict.items.end()) {
      dict.items.emplace_back(std::move(key), std::move(value));
    } else {
      same->second = std::move(value);
    }
  }
  return make(std::move(dict));
}

Value Interpreter::evaluate_unary(const Expr& expr) {
  const Value value = evaluate(*expr.parts[0]);
  if (expr.name == "not") return !value.truthy();
  if (!value.is_number()) error("unary {} needs a number, not {}", expr.name, value.type_name());
  if (value.is<double>()) return expr.name == "-" ? -value.number() : value.number();
  return expr.name == "-" ? integer_arithmetic("-", 0, value.integer()) : Value(value.integer());
}

Value Interpreter::evaluate_compare(const Expr& expr) {
  Value left = evaluate(*expr.parts[0]);
  for (std::size_t i = 0; i < expr.operators.size(); ++i) {
    Value right = evaluate(*expr.parts[i + 1]);
    if (!compare_with(expr.operators[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

bool Interpreter::compare_with(const std::string& op, const Value& a, const Value& b) {
  if (a.is_string()) scan(a.text().size());
  if (op == "==") return equal(a, b);
  if (op == "!=") return !equal(a, b);
  if (op == "in") return contains(b, a);
  if (op == "not in") return !contains(b, a);
  if (op == "<") return less(a, b);
  if (op == ">") return less(b, a);
  if (op == "<=") return less(a, b) || (equal(a, b) && comparable(a, b));
  return less(b, a) || (equal(a, b) && comparable(a, b));
}

bool Interpreter::less(const Value& a, const Value& b) {
  if (!comparable(a, b)) error("{} and {} have no order", a.type_name(), b.type_name());
  if (a.is_list()) step(static_cast<std::int64_t>(a.list().items.size()));
  return compare(a, b) < 0;
}

bool Interpreter::contains(const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) error("\"in\" a str needs a str, not {}", item.type_name());
    scan(container.text().size());
    return container.text().bytes().find(item.text().bytes()) != std::string::npos;
  }
  if (container.is_dict()) {
    step(static_cast<std::int64_t>(container.dict().items.size() / 8));
    return container.dict().find(item) != nullptr;
  }
  if (container.is_undefined()) return false;
  if (!container.is_list()) error("\"in\" needs a str, list or dict, not {}", container.type_name());
  const auto& items = container.list().items;
  step(static_cast<std::int64_t>(items.size()));
  return std::ranges::any_of(items, [&](const Value& value) { return equal(value, item); });
}

Value Interpreter::evaluate_concat(const Expr& expr) {
  Text text;
  for (const Expr* part : expr.parts) {
    const Text piece = to_text(evaluate(*part));
    reserve(piece.memory());
    text.append(piece);
  }
  return text;
}

Value Interpreter::evaluate_slice(const Expr& expr) {
  const Value object = evaluate(*expr.parts[0]);
  if (object.is_undefined()) error("\"{}\" is undefined", std::get<Undefined>(object.storage()).name);
  if (!object.is_list() && !object.is_string()) error("a {} cannot be sliced", object.type_name());
  Value bounds[3];
  for (std::size_t i = 0; i < 3; ++i) {
    if (expr.parts[i + 1] != nullptr) bounds[i] = evaluate(*expr.parts[i + 1]);
    if (!bounds[i].is_none() && !bounds[i].is_integral()) error("the bounds of a slice must be integers");
  }
  std::vector<std::size_t> offsets;
  if (object.is_string()) offsets = character_offsets(object.text().bytes());
  const auto size =
      static_cast<std::int64_t>(object.is_string() ? offsets.size() - 1 : object.list().items.size());
  step(size / 64);
  const std::int64_t stride = bounds[2].is_none() ? 1 : bounds[2].integer();
  if (stride == 0) error("the step of a slice is zero");
  const std::int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? size : size - 1;
  const auto bound = [&](const Value& value, std::int64_t absent) {
    if (value.is_none()) return absent;
    const std::int64_t at = value.integer();
    return std::clamp(at < 0 ? at + size : at, low, high);
  };
  const std::int64_t begin = bound(bounds[0], stride > 0 ? 0 : size - 1);
  const std::int64_t end = bound(bounds[1], stride > 0 ? size : -1);
  const auto offset = [&](std::int64_t at) { return offsets[static_cast<std::size_t>(at)]; };
  if (object.is_string() && stride == 1) {
    return make(begin < end ? object.text().slice(offset(begin), offset(end)) : Text());
  }
  Text text;
  std::vector<Value> items;
  const std::int64_t jump = std::clamp(stride, -size - 1, size + 1);
  for (std::int64_t at = begin; stride > 0 ? at < end : at > end; at += jump) {
    step();
    if (object.is_string()) {
      text.append(object.text(), offset(at), offset(at + 1));
    } else {
      items.push_back(object.list().items[static_cast<std::size_t>(at)]);
    }
  }
  return object.is_string() ? make(std::move(text)) : make_list(std::move(items), object.list().shape);
}

Arguments Interpreter::evaluate_arguments(const Expr& expr) {
  Arguments arguments;
  for (std::size_t i = 1; i < expr.parts.size(); ++i)
    arguments.positional.push_back(evaluate(*expr.parts[i]));
  for (const auto& [name, value] : expr.named) arguments.named.emplace_back(name, evaluate(*value));
  return arguments;
}

Value Interpreter::evaluate_call(const Expr& expr) {
  const Expr& callee = *expr.parts[0];
  if (callee.kind == ExprKind::attribute) {
    const Value object = evaluate(*callee.parts[0]);
    if (has_method(object, callee.name)) {
      Arguments arguments = evaluate_arguments(expr);
      line_ = expr.line;
      return call_method(*this, object, callee.name, arguments);
    }
    const Value function = get_attribute(object, callee.name);
    if (function.is_undefined()) {
      error("a {} has no method \"{}\" that templates may call", object.type_name(), callee.name);
    }
    Arguments arguments = evaluate_arguments(expr);
    return call(function, arguments);
  }
  const Value function = evaluate(callee);
  Arguments arguments = evaluate_arguments(expr);
  line_ = expr.line;
  return call(function, arguments);
}

Value Interpreter::call(const Value& callee, Arguments& arguments) {
  if (callee.is<const Macro*>()) return call_macro(*std::get<const Macro*>(callee.storage()), arguments);
  if (callee.is<std::shared_ptr<const Function>>()) {
    return (*std::get<std::shared_ptr<const Function>>(callee.storage()))(*this, arguments);
  }
  if (callee.is_undefined()) error("\"{}\" is undefined", std::get<Undefined>(callee.storage()).name);
  error("a {} cannot be called", callee.type_name());
}

Value Interpreter::evaluate_filter(const Expr& expr, const Value* input) {
  const Expr* inner = expr.parts[0];
  Value value;
  if (inner == nullptr) {
    value = *input;
  } else if (input != nullptr && inner->kind == ExprKind::filter) {
    value = evaluate_filter(*inner, input);
  } else {
    value = evaluate(*inner);
  }
  Arguments arguments = evaluate_arguments(expr);
  line_ = expr.line;
  return apply_filter(*this, expr.name, value, arguments);
}

Value Interpreter::evaluate_test(const Expr& expr) {
  const Value value = evaluate(*expr.parts[0]);
  Arguments arguments = evaluate_arguments(expr);
  line_ = expr.line;
  return apply_test(*this, expr.name, value, arguments);
}

Text Interpreter::to_text(const Value& value) {
  if (value.is_string()) return value.text();
  Text text;
  if (value.is_undefined()) return text;
  bool ok = true;
  append_repr(value, text, ok);
  if (!ok) error("a {} cannot be printed", value.type_name());
  reserve(text.memory());
  return text;
}

std::vector<Value> Interpreter::iterate(const Value& value) {
  std::vector<Value> items;
  if (value.is_list()) {
    items = value.list().items;
  } else if (value.is_dict()) {
    for (const auto& item : value.dict().items) items.push_back(item.first);
  } else if (value.is_string()) {
    const auto offsets = character_offsets(value.text().bytes());
    reserve(offsets.size() * (sizeof(Value) + sizeof(Text)));
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
      items.push_back(make(value.text().slice(offsets[i], offsets[i + 1])));
    }
  } else if (!value.is_undefined()) {
    error("a {} cannot be iterated over", value.type_name());
  }
  step(static_cast<std::int64_t>(items.size() / 16));
  return items;
}

}  // namespace lode::jinja
