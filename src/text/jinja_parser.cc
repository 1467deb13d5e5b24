#include "text/jinja_parser.h"

#include <algorithm>

namespace lode::jinja {
namespace {

using Type = Token::Type;
using Names = std::vector<std::string_view>;

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  void parse() {
    program().body = parse_body({});
    if (peek().type != Type::end) unexpected("the end of the template");
  }

 private:
  Node& add(NodeKind kind) {
    Node& node = program().nodes.emplace_back();
    node.kind = kind;
    node.line = peek().line;
    return node;
  }

  void end_block() {
    if (peek().type != Type::block_end) unexpected("the end of the tag");
    take();
  }

  // Up to a tag that begins with one of `ends`; its name is the next token then.
  Body parse_body(const Names& ends) {
    const Level level(*this);
    Body body;
    for (;;) {
      if (peek().type == Type::end) {
        if (!ends.empty()) unexpected(lode::format("a tag \"{}\"", ends.back()));
        return body;
      }
      if (peek().type == Type::data) {
        Node& node = add(NodeKind::text);
        node.text = take().value;
        body.push_back(&node);
      } else if (peek().type == Type::variable_begin) {
        take();
        Node& node = add(NodeKind::print);
        node.expr = parse_tuple(true);
        if (peek().type != Type::variable_end) unexpected("the end of the print");
        take();
        body.push_back(&node);
      } else {
        take();
        if (peek().type != Type::name) unexpected("the name of a tag");
        if (std::ranges::find(ends, peek().value) != ends.end()) return body;
        body.push_back(parse_statement());
      }
    }
  }

  // The body behind this tag's end, and its end tag.
  Body parse_block(std::string_view end) {
    end_block();
    Body body = parse_body({end});
    take();
    end_block();
    return body;
  }

  const Node* parse_statement() {
    const std::string tag = peek().value;
    if (tag == "if") return parse_if();
    if (tag == "for") return parse_for();
    if (tag == "set") return parse_set();
    if (tag == "macro") return parse_macro();
    if (tag == "with") return parse_with();
    if (tag == "generation") return parse_generation();
    if (tag == "filter") return parse_filter_block();
    if (tag == "break" || tag == "continue") return parse_jump(tag == "break");
    error(
        lode::format("unknown tag \"{}\"; known are if, for, set, macro, with, filter, generation, break, "
                     "continue, raw",
                     tag));
  }

  const Node* parse_if() {
    Node& node = add(NodeKind::branch);
    for (;;) {
      take();  // if, elif
      node.conditions.push_back(parse_tuple(false));
      end_block();
      node.bodies.push_back(parse_body({"elif", "else", "endif"}));
      if (!at_name("elif")) break;
    }
    if (skip_name("else")) {
      end_block();
      node.bodies.push_back(parse_body({"endif"}));
    }
    take();
    end_block();
    return &node;
  }

  Target parse_target(bool with_attribute) {
    Target target;
    const bool enclosed = skip_symbol("(");
    target.names.push_back(take_name("a name to assign to"));
    if (with_attribute && skip_symbol(".")) {
      target.attribute = take_name("the name of an attribute");
      return target;
    }
    while (skip_symbol(",")) {
      target.unpack = true;
      if (at_name("in") || at_symbol("=") || at_symbol(")")) break;
      target.names.push_back(take_name("a name to assign to"));
    }
    if (enclosed) expect_symbol(")");
    return target;
  }

  const Node* parse_for() {
    Node& node = add(NodeKind::loop);
    take();
    node.target = parse_target(false);
    expect_name("in");
    node.expr = parse_tuple(false);
    if (skip_name("if")) node.filter = parse_expression();
    if (at_name("recursive")) error("recursive loops are not supported");
    end_block();
    ++loops_;
    node.bodies.push_back(parse_body({"else", "endfor"}));
    --loops_;
    if (skip_name("else")) {
      end_block();
      node.bodies.push_back(parse_body({"endfor"}));
    }
    take();
    end_block();
    return &node;
  }

  const Node* parse_set() {
    Node& node = add(NodeKind::set);
    take();
    node.target = parse_target(true);
    if (skip_symbol("=")) {
      node.expr = parse_tuple(true);
      end_block();
      return &node;
    }
    node.kind = NodeKind::set_block;
    node.expr = parse_filters(nullptr);
    node.bodies.push_back(parse_block("endset"));
    return &node;
  }

  const Node* parse_macro() {
    Node& node = add(NodeKind::macro);
    take();
    node.text = take_name("the name of a macro");
    expect_symbol("(");
    while (!at_symbol(")")) {
      std::string name = take_name("the name of a parameter");
      const Expr* value = skip_symbol("=") ? parse_expression() : nullptr;
      node.parameters.emplace_back(std::move(name), value);
      if (!skip_symbol(",")) break;
    }
    expect_symbol(")");
    const int loops = std::exchange(loops_, 0);
    node.bodies.push_back(parse_block("endmacro"));
    loops_ = loops;
    return &node;
  }

  const Node* parse_with() {
    Node& node = add(NodeKind::with);
    take();
    while (peek().type == Type::name) {
      node.target.names.push_back(take().value);
      expect_symbol("=");
      node.conditions.push_back(parse_expression());
      if (!skip_symbol(",")) break;
    }
    node.bodies.push_back(parse_block("endwith"));
    return &node;
  }

  const Node* parse_generation() {
    Node& node = add(NodeKind::generation);
    take();
    program().has_generation = true;
    const int loops = std::exchange(loops_, 0);
    node.bodies.push_back(parse_block("endgeneration"));
    loops_ = loops;
    return &node;
  }

  const Node* parse_filter_block() {
    Node& node = add(NodeKind::filter_block);
    take();
    node.expr = parse_filters(parse_filter(nullptr));
    node.bodies.push_back(parse_block("endfilter"));
    return &node;
  }

  const Node* parse_jump(bool is_break) {
    if (loops_ == 0) error(lode::format("\"{}\" outside of a loop", peek().value));
    Node& node = add(is_break ? NodeKind::break_loop : NodeKind::continue_loop);
    take();
    end_block();
    return &node;
  }

  int loops_ = 0;
};

}  // namespace

Program parse_program(std::string_view source, std::string what) {
  Program program;
  program.what = std::move(what);
  Parser(tokenize(source, program.what), program).parse();
  return program;
}

}  // namespace lode::jinja
