// Tests ("is defined") and the functions that every template has.
#include <array>
#include <ctime>
#include <map>

#include "text/jinja_interpreter.h"

namespace lode::jinja {
namespace {

using Call = bool (*)(Interpreter&, const Value&, Arguments&);

const Value& operand(Interpreter& in, Arguments& arguments) {
  if (arguments.positional.size() != 1) in.error("the test needs one value to compare with");
  return arguments.positional[0];
}

std::int64_t integer_of(Interpreter& in, const Value& value) {
  return expect_integer(in, &value, "the tested value");
}

bool is_cased(Interpreter& in, const Value& value, bool upper) {
  const Text text = in.to_text(value);
  return text.bytes() == change_case(text, upper).bytes() &&
         text.bytes() != change_case(text, !upper).bytes();
}

const std::map<std::string_view, Call>& tests() {
  using In = Interpreter&;
  using V = const Value&;
  using Args = Arguments&;
  static constexpr Call kEqual = [](In in, V v, Args a) { return equal(v, operand(in, a)); };
  static constexpr Call kUnequal = [](In in, V v, Args a) { return !equal(v, operand(in, a)); };
  static constexpr Call kLess = [](In in, V v, Args a) { return in.less(v, operand(in, a)); };
  static constexpr Call kGreater = [](In in, V v, Args a) { return in.less(operand(in, a), v); };
  static constexpr Call kLessEqual = [](In in, V v, Args a) { return !in.less(operand(in, a), v); };
  static constexpr Call kGreaterEqual = [](In in, V v, Args a) { return !in.less(v, operand(in, a)); };
  static const std::map<std::string_view, Call> kTests = {
      {"defined", [](In, V v, Args) { return !v.is_undefined(); }},
      {"undefined", [](In, V v, Args) { return v.is_undefined(); }},
      {"none", [](In, V v, Args) { return v.is_none(); }},
      {"string", [](In, V v, Args) { return v.is_string(); }},
      {"number", [](In, V v, Args) { return v.is_number(); }},
      {"integer", [](In, V v, Args) { return v.is_int(); }},
      {"float", [](In, V v, Args) { return v.is<double>(); }},
      {"boolean", [](In, V v, Args) { return v.is<bool>(); }},
      {"true", [](In, V v, Args) { return v.is<bool>() && v.truthy(); }},
      {"false", [](In, V v, Args) { return v.is<bool>() && !v.truthy(); }},
      {"mapping", [](In, V v, Args) { return v.is_dict(); }},
      {"iterable",
       [](In, V v, Args) { return v.is_string() || v.is_list() || v.is_dict() || v.is_undefined(); }},
      {"sequence",
       [](In, V v, Args) {
         return v.is_string() || v.is_dict() || v.is_undefined() ||
                (v.is_list() && v.list().shape != List::Shape::generator);
       }},
      {"callable",
       [](In, V v, Args) { return v.is<const Macro*>() || v.is<std::shared_ptr<const Function>>(); }},
      {"odd", [](In in, V v, Args) { return integer_of(in, v) % 2 != 0; }},
      {"even", [](In in, V v, Args) { return integer_of(in, v) % 2 == 0; }},
      {"divisibleby",
       [](In in, V v, Args a) {
         return in.binary("%", integer_of(in, v), integer_of(in, operand(in, a))).integer() == 0;
       }},
      {"lower", [](In in, V v, Args) { return is_cased(in, v, false); }},
      {"upper", [](In in, V v, Args) { return is_cased(in, v, true); }},
      {"in", [](In in, V v, Args a) { return in.contains(operand(in, a), v); }},
      {"sameas",
       [](In in, V v, Args a) {
         const Value& other = operand(in, a);
         return v.storage().index() == other.storage().index() && equal(v, other);
       }},
      {"eq", kEqual},
      {"equalto", kEqual},
      {"==", kEqual},
      {"ne", kUnequal},
      {"!=", kUnequal},
      {"lt", kLess},
      {"lessthan", kLess},
      {"<", kLess},
      {"gt", kGreater},
      {"greaterthan", kGreater},
      {">", kGreater},
      {"le", kLessEqual},
      {"<=", kLessEqual},
      {"ge", kGreaterEqual},
      {">=", kGreaterEqual},
  };
  return kTests;
}

Value call_range(Interpreter& in, Arguments& arguments) {
  static constexpr std::int64_t kMaxRange = 100'000;  // the limit of the reference's sandbox
  std::array<std::int64_t, 3> bounds = {0, 0, 1};
  const std::size_t count = arguments.positional.size();
  if (count < 1 || count > 3) in.error("range takes one to three integers");
  for (std::size_t i = 0; i < count; ++i) {
    bounds[count == 1 ? 1 : i] = expect_integer(in, &arguments.positional[i], "a bound of range");
  }
  const auto [begin, end, stride] = bounds;
  if (stride == 0) in.error("the step of range is zero");
  std::vector<Value> items;
  for (std::int64_t at = begin; stride > 0 ? at < end : at > end;) {
    items.push_back(at);
    if (static_cast<std::int64_t>(items.size()) > kMaxRange) in.error("range is longer than {}", kMaxRange);
    if (__builtin_add_overflow(at, stride, &at)) break;
  }
  in.step(static_cast<std::int64_t>(items.size() / 16));
  return in.make_list(std::move(items));
}

Value call_raise(Interpreter& in, Arguments& arguments) {
  const Text message = arguments.positional.empty() ? Text() : in.to_text(arguments.positional[0]);
  in.error("the template rejects these messages: {}", message.bytes());
}

Value call_strftime(Interpreter& in, Arguments& arguments) {
  const Text& pattern = expect_text(in, arguments.get(0, "format"), "the format of strftime_now");
  const std::time_t now = in.now() >= 0 ? static_cast<std::time_t>(in.now()) : std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  if (pattern.size() > 200) in.error("the format of strftime_now is too long");
  // The mark in front tells an empty result from one that does not fit.
  std::array<char, 4096> buffer{};
  const std::size_t size =
      std::strftime(buffer.data(), buffer.size(), ("." + pattern.bytes()).c_str(), &local);
  if (size == 0) in.error("the result of strftime_now is too long");
  return in.make(Text(std::string(buffer.data() + 1, size - 1)));
}

Value call_namespace(Interpreter& in, Arguments& arguments) {
  return in.new_namespace(arguments);
}

Value call_dict(Interpreter& in, Arguments& arguments) {
  Dict dict;
  if (!arguments.positional.empty()) {
    if (!arguments.positional[0].is_dict()) in.error("dict() takes a dict or named values");
    dict.items = arguments.positional[0].dict().items;
  }
  for (const auto& [name, value] : arguments.named) {
    const auto same = [&name = name](const auto& item) {
      return item.first.is_string() && item.first.text().bytes() == name;
    };
    std::erase_if(dict.items, same);
    dict.items.emplace_back(Value::string(name), value);
  }
  return in.make(std::move(dict));
}

}  // namespace

bool apply_test(Interpreter& interpreter, const std::string& name, const Value& input, Arguments& arguments) {
  const auto test = tests().find(name);
  if (test == tests().end()) interpreter.error("no test is named \"{}\"", name);
  return test->second(interpreter, input, arguments);
}

Interpreter::Variables global_functions() {
  Interpreter::Variables functions;
  functions.emplace_back("range", Function(call_range));
  functions.emplace_back("raise_exception", Function(call_raise));
  functions.emplace_back("strftime_now", Function(call_strftime));
  functions.emplace_back("namespace", Function(call_namespace));
  functions.emplace_back("dict", Function(call_dict));
  return functions;
}

}  // namespace lode::jinja
