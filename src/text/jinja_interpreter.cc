// Statements, names and limits. Expressions are in jinja_evaluate.cc.
#include "text/jinja_interpreter.h"

#include <algorithm>
#include <utility>

namespace lode::jinja {

class Interpreter::Level {
 public:
  explicit Level(Interpreter& interpreter) : interpreter_(interpreter) {
    if (++interpreter.depth_ > interpreter.limits_.depth) {
      interpreter.error("the template nests or calls itself deeper than {} levels",
                        interpreter.limits_.depth);
    }
  }
  ~Level() { --interpreter_.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Interpreter& interpreter_;
};

Interpreter::Interpreter(const Program& program, Variables variables, Limits limits, std::int64_t now)
    : program_(program), limits_(limits), now_(now) {
  Scope* globals = new_scope(nullptr);
  globals->variables = global_functions();
  scope_ = new_scope(globals);
  scope_->variables = std::move(variables);
}

Text Interpreter::run() {
  Text out;
  out_ = &out;
  run_body(program_.body);
  return out;
}

void Interpreter::step(std::int64_t count) {
  steps_ += count;
  if (steps_ > limits_.steps) error("the template runs longer than {} steps", limits_.steps);
}

void Interpreter::reserve(std::size_t bytes) {
  if (bytes > limits_.bytes - bytes_) {
    error("the template makes more than {} of text and lists", format_bytes(limits_.bytes));
  }
  bytes_ += bytes;
}

Value Interpreter::make(Text text) {
  reserve(text.memory());
  return text;
}

Value Interpreter::make(List list) {
  reserve(list.items.size() * sizeof(Value));
  Value value(std::move(list));
  if (value.depth() > kMaxValueDepth) error("a list is nested deeper than {} levels", kMaxValueDepth);
  return value;
}

Value Interpreter::make(Dict dict) {
  reserve(2 * dict.items.size() * sizeof(Value));
  Value value(std::move(dict));
  if (value.depth() > kMaxValueDepth) error("a dict is nested deeper than {} levels", kMaxValueDepth);
  return value;
}

Value Interpreter::make_list(std::vector<Value> items, List::Shape shape) {
  return make(List{std::move(items), shape});
}

Interpreter::Scope* Interpreter::new_scope(Scope* parent) {
  return &scopes_.emplace_back(Scope{parent, {}});
}

void Interpreter::leave_scope() {
  Scope* const left = std::exchange(scope_, scope_->parent);
  if (!left->captured && left == &scopes_.back()) scopes_.pop_back();
}

const Value* Interpreter::find_name(const std::string& name) const {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    for (const auto& [key, value] : scope->variables) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

void Interpreter::set_name(const std::string& name, const Value& value) {
  if (bindable_ && value.is_dict() && value.dict().message >= 0) {
    turn_ = value.dict().message;
    bindable_ = false;
  }
  for (auto& [key, old] : scope_->variables) {
    if (key == name) {
      old = value;
      return;
    }
  }
  scope_->variables.emplace_back(name, value);
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (!target.attribute.empty()) {
    const Value* object = find_name(target.names[0]);
    if (object == nullptr || !object->is<Namespace*>()) {
      error("\"{}\" is no namespace: only a namespace's attributes can be set", target.names[0]);
    }
    Value kept = value;
    if (value.is_string() && turn_ >= 0) {  // what a turn puts aside for later is still that turn's
      Text text = value.text();
      text.stamp(turn_, mark_);
      kept = make(std::move(text));
    }
    auto& fields = std::get<Namespace*>(object->storage())->fields;
    const auto field = std::ranges::find(fields, target.attribute, [](const auto& f) { return f.first; });
    if (field == fields.end()) {
      fields.emplace_back(target.attribute, kept);
    } else {
      field->second = kept;
    }
    return;
  }
  if (!target.unpack) return set_name(target.names[0], value);
  const std::vector<Value> values = iterate(value);
  if (values.size() != target.names.size()) {
    error("cannot unpack {} values into {} names", values.size(), target.names.size());
  }
  for (std::size_t i = 0; i < values.size(); ++i) set_name(target.names[i], values[i]);
}

void Interpreter::emit(Text text) {
  text.stamp(turn_, mark_);
  reserve(text.memory());
  out_->append(text);
  if (out_->size() > limits_.output) error("the output is longer than {}", format_bytes(limits_.output));
}

Text Interpreter::capture(const Body& body, Scope* scope) {
  Text text;
  Text* const out = std::exchange(out_, &text);
  Scope* const outer = std::exchange(scope_, scope);
  run_body(body);
  leave_scope();
  scope_ = outer;
  out_ = out;
  return text;
}

Interpreter::Flow Interpreter::run_body(const Body& body) {
  const Level level(*this);
  for (const Node* node : body) {
    const Flow flow = run_node(*node);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::run_node(const Node& node) {
  line_ = node.line;
  step();
  switch (node.kind) {
    case NodeKind::text:
      emit(Text(node.text));
      break;
    case NodeKind::print:
      emit(to_text(evaluate(*node.expr)));
      break;
    case NodeKind::branch:
      return run_branch(node);
    case NodeKind::loop:
      return run_loop(node);
    case NodeKind::set:
      assign(node.target, evaluate(*node.expr));
      break;
    case NodeKind::set_block:
      run_set(node);
      break;
    case NodeKind::macro:
      run_macro(node);
      break;
    case NodeKind::filter_block: {
      const Value text = make(capture(node.bodies[0], new_scope(scope_)));
      emit(to_text(evaluate_filter(*node.expr, &text)));
      break;
    }
    case NodeKind::with:
      run_with(node);
      break;
    case NodeKind::generation:
      return run_generation(node);
    case NodeKind::break_loop:
      return Flow::broken;
    case NodeKind::continue_loop:
      return Flow::continued;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::run_branch(const Node& node) {
  std::size_t taken = 0;
  while (taken < node.conditions.size() && !evaluate(*node.conditions[taken]).truthy()) ++taken;
  return taken < node.bodies.size() ? run_body(node.bodies[taken]) : Flow::normal;
}

std::vector<Value> Interpreter::loop_items(const Node& node) {
  std::vector<Value> items = iterate(evaluate(*node.expr));
  reserve(items.size() * sizeof(Value));
  if (node.filter == nullptr) return items;
  const bool bindable = std::exchange(bindable_, false);
  Scope* const outer = scope_;
  std::vector<Value> kept;
  for (const Value& item : items) {
    scope_ = new_scope(outer);
    assign(node.target, item);
    if (evaluate(*node.filter).truthy()) kept.push_back(item);
    leave_scope();
  }
  bindable_ = bindable;
  return kept;
}

Interpreter::Flow Interpreter::run_loop(const Node& node) {
  const std::vector<Value> items = loop_items(node);
  Scope* const outer = scope_;
  if (items.empty()) {
    if (node.bodies.size() < 2) return Flow::normal;
    scope_ = new_scope(outer);
    const Flow flow = run_body(node.bodies[1]);
    leave_scope();
    return flow;
  }
  Loop loop{&items, 0};
  const auto turn = turn_;
  const bool bindable = bindable_;
  for (; loop.index < items.size(); ++loop.index) {
    step();
    scope_ = new_scope(outer);
    bindable_ = true;
    assign(node.target, items[loop.index]);
    scope_->variables.emplace_back("loop", Value::Storage(static_cast<const Loop*>(&loop)));
    const Flow flow = run_body(node.bodies[0]);
    leave_scope();
    turn_ = turn;
    if (flow == Flow::broken) break;
  }
  bindable_ = bindable;
  return Flow::normal;
}

Interpreter::Flow Interpreter::run_generation(const Node& node) {
  const auto mark = std::exchange(mark_, marks_++);
  scope_ = new_scope(scope_);
  const Flow flow = run_body(node.bodies[0]);
  leave_scope();
  mark_ = mark;
  return flow;
}

void Interpreter::run_set(const Node& node) {
  Value value = make(capture(node.bodies[0], new_scope(scope_)));
  if (node.expr != nullptr) value = evaluate_filter(*node.expr, &value);
  assign(node.target, value);
}

void Interpreter::run_macro(const Node& node) {
  static constexpr std::size_t kScopeBytes = 1024;
  reserve(sizeof(Macro) + kScopeBytes);
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) scope->captured = true;
  const Macro& macro = macros_.emplace_back(Macro{&node, scope_});
  set_name(node.text, Value::Storage(&macro));
}

void Interpreter::run_with(const Node& node) {
  std::vector<Value> values;
  for (const Expr* expr : node.conditions) values.push_back(evaluate(*expr));
  scope_ = new_scope(scope_);
  for (std::size_t i = 0; i < values.size(); ++i) set_name(node.target.names[i], values[i]);
  run_body(node.bodies[0]);
  leave_scope();
}

Value Interpreter::call_macro(const Macro& macro, Arguments& arguments) {
  const Level level(*this);
  const Node& node = *macro.node;
  Scope* const scope = new_scope(static_cast<Scope*>(macro.scope));
  Scope* const outer = std::exchange(scope_, scope);
  const bool bindable = std::exchange(bindable_, false);
  for (std::size_t i = 0; i < node.parameters.size(); ++i) {
    const auto& [name, initial] = node.parameters[i];
    const Value* given = arguments.get(i, name);
    if (given != nullptr) {
      set_name(name, *given);
    } else {
      set_name(name, initial != nullptr ? evaluate(*initial) : Value::undefined(name));
    }
  }
  if (arguments.positional.size() > node.parameters.size()) {
    error("the macro \"{}\" takes {} arguments, not {}", node.text, node.parameters.size(),
          arguments.positional.size());
  }
  scope_ = outer;
  Value result = make(capture(node.bodies[0], scope));
  bindable_ = bindable;
  return result;
}

Value Interpreter::new_namespace(Arguments& arguments) {
  reserve(sizeof(Namespace));
  Namespace& fields = namespaces_.emplace_back();
  for (const Value& value : arguments.positional) {
    if (!value.is_dict()) error("namespace() takes a dict or named values");
    for (const auto& [key, item] : value.dict().items) fields.fields.emplace_back(to_text(key).bytes(), item);
  }
  for (auto& [name, value] : arguments.named) fields.fields.emplace_back(name, value);
  return Value::Storage(&fields);
}

}  // namespace lode::jinja
