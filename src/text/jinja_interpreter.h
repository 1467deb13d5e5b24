// Runs a parsed template within limits. It sees its variables and nothing else.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "text/jinja_program.h"

namespace lode::jinja {

struct Limits {
  std::int64_t steps = 5'000'000;   // nodes executed, and every 256 bytes looked at
  std::size_t bytes = 512UL << 20;  // of all strings and lists ever made
  std::size_t output = 64UL << 20;  // of the text
  int depth = 400;                  // nested expressions, statements and macro calls
};

class Interpreter {
 public:
  using Variables = std::vector<std::pair<std::string, Value>>;

  Interpreter(const Program& program, Variables variables, Limits limits, std::int64_t now);

  Text run();

  // For the functions that templates call.
  template <class... Args>
  [[noreturn]] void error(std::string_view pattern, const Args&... args) const {
    fail(ErrorKind::data, "{}: line {}: {}", program_.what, line_, lode::format(pattern, args...));
  }
  void step(std::int64_t count = 1);
  void scan(std::size_t bytes) { step(static_cast<std::int64_t>(bytes / 256)); }
  Value make(Text text);
  Value make(List list);
  Value make(Dict dict);
  Value make_list(std::vector<Value> items, List::Shape shape = List::Shape::list);
  void reserve(std::size_t bytes);   // refuses what would go beyond the limit, before it is made
  Text to_text(const Value& value);  // as str()
  std::vector<Value> iterate(const Value& value);
  Value get_attribute(const Value& object, const std::string& name);
  Value get_item(const Value& object, const Value& key);
  Value call(const Value& callee, Arguments& arguments);
  bool contains(const Value& container, const Value& item);
  bool less(const Value& a, const Value& b);
  Value binary(const std::string& op, const Value& a, const Value& b);
  Value new_namespace(Arguments& arguments);
  std::int64_t now() const { return now_; }

 private:
  struct Scope {
    Scope* parent;
    Variables variables;
    bool captured = false;  // a macro needs it for as long as the template runs
  };
  enum class Flow { normal, broken, continued };
  class Level;

  // Statements.
  Flow run_body(const Body& body);
  Flow run_node(const Node& node);
  Flow run_branch(const Node& node);
  Flow run_loop(const Node& node);
  std::vector<Value> loop_items(const Node& node);
  Flow run_generation(const Node& node);
  void run_set(const Node& node);
  void run_macro(const Node& node);
  void run_with(const Node& node);
  Text capture(const Body& body, Scope* scope);
  void emit(Text text);
  void assign(const Target& target, const Value& value);
  void set_name(const std::string& name, const Value& value);
  const Value* find_name(const std::string& name) const;
  Scope* new_scope(Scope* parent);
  void leave_scope();  // back to the parent; scopes are left in the opposite order of their making

  // Expressions.
  Value evaluate(const Expr& expr);
  Value evaluate_collection(const Expr& expr);
  Value evaluate_unary(const Expr& expr);
  Value evaluate_compare(const Expr& expr);
  bool compare_with(const std::string& op, const Value& a, const Value& b);
  Value evaluate_slice(const Expr& expr);
  Value evaluate_call(const Expr& expr);
  Value evaluate_filter(const Expr& expr, const Value* input);
  Value evaluate_test(const Expr& expr);
  Value evaluate_concat(const Expr& expr);
  Arguments evaluate_arguments(const Expr& expr);
  Value call_macro(const Macro& macro, Arguments& arguments);
  Value loop_attribute(const Loop& loop, const std::string& name);
  Value arithmetic(const std::string& op, const Value& a, const Value& b);
  Value integer_arithmetic(const std::string& op, std::int64_t a, std::int64_t b);
  Value repeat(const Value& value, std::int64_t times);
  Value format_percent(const Text& pattern, const Value& values);

  const Program& program_;
  const Limits limits_;
  const std::int64_t now_;
  std::deque<Scope> scopes_;
  std::deque<Namespace> namespaces_;
  std::deque<Macro> macros_;
  Scope* scope_ = nullptr;
  Text* out_ = nullptr;
  std::int64_t steps_ = 0;
  std::size_t bytes_ = 0;
  int depth_ = 0;
  int line_ = 1;
  std::int32_t turn_ = -1;  // the message that the innermost loop iteration is about
  bool bindable_ = false;   // an iteration whose variable is no message can still take one by {% set %}
  std::int32_t mark_ = -1, marks_ = 0;
};

struct Macro {
  const Node* node;
  void* scope;  // where it was defined
};

// Tables of what templates can call. An unknown name, or wrong arguments, is an error of the interpreter.
Value apply_filter(Interpreter& interpreter, const std::string& name, const Value& input,
                   Arguments& arguments);
bool apply_test(Interpreter& interpreter, const std::string& name, const Value& input, Arguments& arguments);
bool has_method(const Value& object, std::string_view name);
Value call_method(Interpreter& interpreter, const Value& object, const std::string& name,
                  Arguments& arguments);
// The names every template has (range, namespace, raise_exception, strftime_now, dict).
Interpreter::Variables global_functions();

// Parts of several tables.
Text escape_html(const Text& text);
Text change_case(const Text& text, bool upper, std::size_t begin_character = 0,
                 std::size_t end_character = SIZE_MAX);
Value replace_text(Interpreter& interpreter, const Text& text, const Text& from, const Text& to,
                   std::int64_t count);
std::vector<Range> split_lines(std::string_view text, bool keep_ends);
const Text& expect_text(Interpreter& interpreter, const Value* value, std::string_view what);
std::int64_t expect_integer(Interpreter& interpreter, const Value* value, std::string_view what);

}  // namespace lode::jinja
