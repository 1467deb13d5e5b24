#include <algorithm>
#include <charconv>

#include "text/jinja_parser.h"

namespace lode::jinja {

using Type = Token::Type;

ExpressionParser::Level::Level(ExpressionParser& parser) : parser_(parser) {
  static constexpr int kMaxNesting = 100;
  if (++parser_.depth_ > kMaxNesting) {
    parser_.error(lode::format("nested deeper than {} levels", kMaxNesting));
  }
}

const Token& ExpressionParser::take() {
  const Token& token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool ExpressionParser::at_symbol(std::string_view symbol) const {
  return peek().type == Type::symbol && peek().value == symbol;
}

bool ExpressionParser::at_name(std::string_view name) const {
  return peek().type == Type::name && peek().value == name;
}

bool ExpressionParser::skip_symbol(std::string_view symbol) {
  if (!at_symbol(symbol)) return false;
  take();
  return true;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  take();
  return true;
}

void ExpressionParser::expect_symbol(std::string_view symbol) {
  if (!skip_symbol(symbol)) unexpected(lode::format("\"{}\"", symbol));
}

void ExpressionParser::expect_name(std::string_view name) {
  if (!skip_name(name)) unexpected(lode::format("\"{}\"", name));
}

std::string ExpressionParser::take_name(std::string_view what) {
  if (peek().type != Type::name) unexpected(what);
  return take().value;
}

void ExpressionParser::error(std::string_view message) const {
  fail(ErrorKind::data, "{}: line {}: {}", program_.what, peek().line, message);
}

void ExpressionParser::unexpected(std::string_view expected) const {
  std::string found = "the end of the template";
  if (peek().type == Type::block_end || peek().type == Type::variable_end) {
    found = "the end of the tag";
  } else if (peek().type != Type::end) {
    found = lode::format("\"{}\"", std::string_view(peek().value).substr(0, 40));
  }
  error(lode::format("expected {}, found {}", expected, found));
}

Expr& ExpressionParser::add(ExprKind kind, std::vector<const Expr*> parts, std::string name) {
  Expr& expr = program_.exprs.emplace_back();
  expr.kind = kind;
  expr.line = peek().line;
  expr.parts = std::move(parts);
  expr.name = std::move(name);
  return expr;
}

const Expr* ExpressionParser::parse_expression() {
  const Level level(*this);
  const Expr* expr = parse_or();
  while (skip_name("if")) {
    const Expr* condition = parse_or();
    const Expr* otherwise = skip_name("else") ? parse_expression() : nullptr;
    expr = &add(ExprKind::conditional, {expr, condition, otherwise});
  }
  return expr;
}

const Expr* ExpressionParser::parse_or() {
  const Level level(*this);
  const Expr* left = parse_and();
  while (skip_name("or")) {
    const Expr* right = parse_and();
    left = &add(ExprKind::logical_or, {left, right});
  }
  return left;
}

const Expr* ExpressionParser::parse_and() {
  const Expr* left = parse_not();
  while (skip_name("and")) {
    const Expr* right = parse_not();
    left = &add(ExprKind::logical_and, {left, right});
  }
  return left;
}

const Expr* ExpressionParser::parse_not() {
  if (!skip_name("not")) return parse_compare();
  const Level level(*this);
  return &add(ExprKind::unary, {parse_not()}, "not");
}

const Expr* ExpressionParser::parse_compare() {
  static constexpr std::string_view kOperators[] = {"==", "!=", "<=", ">=", "<", ">"};
  std::vector<const Expr*> parts = {parse_sum()};
  std::vector<std::string> operators;
  for (;;) {
    if (peek().type == Type::symbol && std::ranges::find(kOperators, peek().value) != std::end(kOperators)) {
      operators.push_back(take().value);
    } else if (skip_name("in")) {
      operators.emplace_back("in");
    } else if (at_name("not") && peek_second().type == Type::name && peek_second().value == "in") {
      take();
      take();
      operators.emplace_back("not in");
    } else {
      break;
    }
    parts.push_back(parse_sum());
  }
  if (operators.empty()) return parts[0];
  Expr& expr = add(ExprKind::compare, std::move(parts));
  expr.operators = std::move(operators);
  return &expr;
}

const Expr* ExpressionParser::parse_sum() {
  const Expr* left = parse_concat();
  while (at_symbol("+") || at_symbol("-")) {
    const std::string op = take().value;
    const Expr* right = parse_concat();
    left = &add(ExprKind::binary, {left, right}, op);
  }
  return left;
}

const Expr* ExpressionParser::parse_concat() {
  std::vector<const Expr*> parts = {parse_product()};
  while (skip_symbol("~")) parts.push_back(parse_product());
  return parts.size() == 1 ? parts[0] : &add(ExprKind::concat, std::move(parts));
}

const Expr* ExpressionParser::parse_product() {
  const Expr* left = parse_power();
  while (at_symbol("*") || at_symbol("/") || at_symbol("//") || at_symbol("%")) {
    const std::string op = take().value;
    const Expr* right = parse_power();
    left = &add(ExprKind::binary, {left, right}, op);
  }
  return left;
}

const Expr* ExpressionParser::parse_power() {
  const Expr* left = parse_unary(true);
  while (skip_symbol("**")) {
    const Expr* right = parse_unary(true);
    left = &add(ExprKind::binary, {left, right}, "**");
  }
  return left;
}

const Expr* ExpressionParser::parse_unary(bool with_filters) {
  const Level level(*this);
  const Expr* expr = nullptr;
  if (at_symbol("-") || at_symbol("+")) {
    const std::string op = take().value;
    expr = &add(ExprKind::unary, {parse_unary(false)}, op);
  } else {
    expr = parse_primary();
  }
  expr = parse_postfix(expr);
  return with_filters ? parse_postfix_filters(expr) : expr;
}

const Expr* ExpressionParser::parse_postfix(const Expr* object) {
  for (;;) {
    if (skip_symbol(".")) {
      if (peek().type == Type::integer) {
        object = &add(ExprKind::subscript, {object, parse_number()});
      } else {
        object = &add(ExprKind::attribute, {object}, take_name("a name behind the dot"));
      }
    } else if (at_symbol("[")) {
      object = parse_subscript(object);
    } else if (at_symbol("(")) {
      object = parse_call(object);
    } else {
      return object;
    }
  }
}

const Expr* ExpressionParser::parse_postfix_filters(const Expr* object) {
  for (;;) {
    if (skip_symbol("|")) {
      object = parse_filter(object);
    } else if (skip_name("is")) {
      object = parse_test(object);
    } else if (at_symbol("(")) {
      object = parse_call(object);
    } else {
      return object;
    }
  }
}

const Expr* ExpressionParser::parse_filters(const Expr* input) {
  while (skip_symbol("|")) input = parse_filter(input);
  return input;
}

const Expr* ExpressionParser::parse_filter(const Expr* input) {
  Expr& filter = add(ExprKind::filter, {input}, take_name("the name of a filter"));
  if (at_symbol("(")) parse_arguments(filter);
  return &filter;
}

const Expr* ExpressionParser::parse_test(const Expr* object) {
  const bool negated = skip_name("not");
  Expr& test = add(ExprKind::test, {object}, take_name("the name of a test"));
  const bool operand = peek().type == Type::name || peek().type == Type::string ||
                       peek().type == Type::integer || peek().type == Type::real || at_symbol("[") ||
                       at_symbol("{");
  if (at_symbol("(")) {
    parse_arguments(test);
  } else if (operand && !at_name("else") && !at_name("or") && !at_name("and")) {
    if (at_name("is")) error("tests cannot be chained with \"is\"");
    test.parts.push_back(parse_postfix(parse_primary()));
  }
  return negated ? &add(ExprKind::unary, {&test}, "not") : &test;
}

const Expr* ExpressionParser::parse_call(const Expr* callee) {
  Expr& call = add(ExprKind::call, {callee});
  parse_arguments(call);
  return &call;
}

void ExpressionParser::parse_arguments(Expr& call) {
  expect_symbol("(");
  while (!at_symbol(")")) {
    if (at_symbol("*") || at_symbol("**")) error("unpacked arguments (* and **) are not supported");
    const Token& second = peek_second();
    if (peek().type == Type::name && second.type == Type::symbol && second.value == "=") {
      std::string name = take().value;
      take();
      const Expr* value = parse_expression();
      call.named.emplace_back(std::move(name), value);
    } else {
      if (!call.named.empty()) error("a positional argument follows a named one");
      call.parts.push_back(parse_expression());
    }
    if (!skip_symbol(",")) break;
  }
  expect_symbol(")");
}

const Expr* ExpressionParser::parse_subscript(const Expr* object) {
  expect_symbol("[");
  const Expr* bounds[3] = {nullptr, nullptr, nullptr};
  int colons = 0;
  for (;;) {
    if (!at_symbol(":") && !at_symbol("]")) bounds[colons] = parse_expression();
    if (colons == 2 || !skip_symbol(":")) break;
    ++colons;
  }
  if (at_symbol(",")) error("an index with several parts is not supported");
  expect_symbol("]");
  if (colons > 0) return &add(ExprKind::slice, {object, bounds[0], bounds[1], bounds[2]});
  if (bounds[0] == nullptr) error("an index is empty");
  return &add(ExprKind::subscript, {object, bounds[0]});
}

const Expr* ExpressionParser::parse_primary() {
  const Token& token = peek();
  switch (token.type) {
    case Type::string:
      return parse_string();
    case Type::integer:
    case Type::real:
      return parse_number();
    case Type::name:
      break;
    default:
      if (at_symbol("(")) return parse_parenthesis();
      if (at_symbol("[")) return parse_list();
      if (at_symbol("{")) return parse_dict();
      unexpected("an expression");
  }
  Expr& expr = add(ExprKind::literal, {});
  const std::string name = take().value;
  if (name == "true" || name == "True") {
    expr.value = true;
  } else if (name == "false" || name == "False") {
    expr.value = false;
  } else if (name != "none" && name != "None") {
    expr.kind = ExprKind::name;
    expr.name = name;
  }
  return &expr;
}

const Expr* ExpressionParser::parse_string() {
  Expr& expr = add(ExprKind::literal, {});
  std::string text = take().value;
  while (peek().type == Type::string) text += take().value;
  expr.value = Text(std::move(text));
  return &expr;
}

const Expr* ExpressionParser::parse_number() {
  Expr& expr = add(ExprKind::literal, {});
  const std::string& digits = peek().value;
  const char* end = digits.data() + digits.size();
  if (peek().type == Type::integer) {
    std::int64_t value = 0;
    if (std::from_chars(digits.data(), end, value).ptr != end) error("the number is too large");
    expr.value = value;
  } else {
    double value = 0;
    const auto result = std::from_chars(digits.data(), end, value);
    if (result.ec != std::errc() || result.ptr != end) error("the number is out of range");
    expr.value = value;
  }
  take();
  return &expr;
}

const Expr* ExpressionParser::parse_list() {
  Expr& list = add(ExprKind::list, {});
  expect_symbol("[");
  while (!at_symbol("]")) {
    list.parts.push_back(parse_expression());
    if (!skip_symbol(",")) break;
  }
  expect_symbol("]");
  return &list;
}

const Expr* ExpressionParser::parse_dict() {
  Expr& dict = add(ExprKind::dict, {});
  expect_symbol("{");
  while (!at_symbol("}")) {
    dict.parts.push_back(parse_expression());
    expect_symbol(":");
    dict.parts.push_back(parse_expression());
    if (!skip_symbol(",")) break;
  }
  expect_symbol("}");
  return &dict;
}

const Expr* ExpressionParser::parse_parenthesis() {
  expect_symbol("(");
  const Expr* expr = at_symbol(")") ? &add(ExprKind::tuple, {}) : parse_tuple(true);
  expect_symbol(")");
  return expr;
}

bool ExpressionParser::at_expression_end() const {
  return peek().type == Type::variable_end || peek().type == Type::block_end || at_symbol(")") ||
         at_symbol("=");
}

const Expr* ExpressionParser::parse_tuple(bool with_conditional) {
  std::vector<const Expr*> parts = {with_conditional ? parse_expression() : parse_or()};
  bool tuple = false;
  while (skip_symbol(",")) {
    tuple = true;
    if (at_expression_end()) break;
    parts.push_back(with_conditional ? parse_expression() : parse_or());
  }
  return tuple ? &add(ExprKind::tuple, std::move(parts)) : parts[0];
}

}  // namespace lode::jinja
