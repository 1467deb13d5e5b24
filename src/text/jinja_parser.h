// Expressions of templates; statements build on it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/fail.h"
#include "text/jinja_lexer.h"
#include "text/jinja_program.h"

namespace lode::jinja {

class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, Program& program)
      : tokens_(std::move(tokens)), program_(program) {}

  const Expr* parse_expression();  // with the inline if
  const Expr* parse_or();          // without
  const Expr* parse_primary();
  // Several expressions with commas between make a tuple.
  const Expr* parse_tuple(bool with_conditional);
  // Filters behind a `|`, the first applied to `input`.
  const Expr* parse_filters(const Expr* input);
  const Expr* parse_filter(const Expr* input);  // at the name

  const Token& peek() const { return tokens_[at_]; }
  const Token& peek_second() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& take();
  bool at_symbol(std::string_view symbol) const;
  bool at_name(std::string_view name) const;
  bool skip_symbol(std::string_view symbol);
  bool skip_name(std::string_view name);
  void expect_symbol(std::string_view symbol);
  void expect_name(std::string_view name);
  std::string take_name(std::string_view what);  // any name; `what` says what it should be
  [[noreturn]] void error(std::string_view message) const;
  [[noreturn]] void unexpected(std::string_view expected) const;

 protected:
  // Guards one level of nesting.
  class Level {
   public:
    explicit Level(ExpressionParser& parser);
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

  Program& program() { return program_; }

 private:
  Expr& add(ExprKind kind, std::vector<const Expr*> parts, std::string name = {});
  const Expr* parse_and();
  const Expr* parse_not();
  const Expr* parse_compare();
  const Expr* parse_sum();
  const Expr* parse_concat();
  const Expr* parse_product();
  const Expr* parse_power();
  const Expr* parse_unary(bool with_filters);
  const Expr* parse_postfix(const Expr* object);
  const Expr* parse_postfix_filters(const Expr* object);
  const Expr* parse_subscript(const Expr* object);
  const Expr* parse_test(const Expr* object);
  const Expr* parse_call(const Expr* callee);
  void parse_arguments(Expr& call);
  const Expr* parse_number();
  const Expr* parse_string();
  const Expr* parse_list();
  const Expr* parse_dict();
  const Expr* parse_parenthesis();
  bool at_expression_end() const;

  std::vector<Token> tokens_;
  Program& program_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace lode::jinja
