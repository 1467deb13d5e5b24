// A parsed template.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace lode::jinja {

enum class ExprKind {
  literal,      // value
  name,         // name
  list,         // parts
  tuple,        // parts
  dict,         // parts: key, value, key, value, ...
  attribute,    // parts[0].name
  subscript,    // parts[0][parts[1]]
  slice,        // parts[0][parts[1]:parts[2]:parts[3]], absent parts null
  call,         // parts[0](parts[1..], named)
  filter,       // parts[0] | name(parts[1..], named); parts[0] null: the text of the block
  test,         // parts[0] is name(parts[1..], named)
  unary,        // name parts[0]: "not", "-", "+"
  binary,       // parts[0] name parts[1]: arithmetic
  compare,      // parts[0] operators[0] parts[1] operators[1] ...
  concat,       // parts[0] ~ parts[1] ~ ...
  conditional,  // parts[0] if parts[1] else parts[2]; the last may be null
  logical_and,  // parts[0] and parts[1]
  logical_or,
};

struct Expr {
  ExprKind kind = ExprKind::literal;
  int line = 1;
  std::string name;
  Value value;
  std::vector<const Expr*> parts;
  std::vector<std::pair<std::string, const Expr*>> named;
  std::vector<std::string> operators;
};

struct Node;
using Body = std::vector<const Node*>;

// What a value is assigned to: one name, a name's attribute (namespace), or several names.
struct Target {
  std::vector<std::string> names;
  std::string attribute;  // of names[0]; else empty
  bool unpack = false;
};

enum class NodeKind {
  text,          // text
  print,         // expr
  branch,        // if: conditions[i] -> bodies[i]; one more body: else
  loop,          // for target in expr [if filter]: bodies[0]; else bodies[1]
  set,           // target = expr
  set_block,     // target = bodies[0] through the filters of expr (may be null)
  macro,         // text: its name; parameters; bodies[0]
  filter_block,  // bodies[0] through expr
  with,          // assignments of names to conditions; bodies[0]
  generation,    // bodies[0]
  break_loop,
  continue_loop,
};

struct Node {
  NodeKind kind = NodeKind::text;
  int line = 1;
  std::string text;
  const Expr* expr = nullptr;
  const Expr* filter = nullptr;
  Target target;
  std::vector<const Expr*> conditions;
  std::vector<Body> bodies;
  std::vector<std::pair<std::string, const Expr*>> parameters;  // with default or null
};

// Owns all nodes flat, so that freeing a long chain does not recurse.
struct Program {
  std::deque<Expr> exprs;
  std::deque<Node> nodes;
  Body body;
  std::string what;
  bool has_generation = false;
};

// Throws Error(data) "what: line N: ...". Nesting deeper than 100 is refused.
Program parse_program(std::string_view source, std::string what);

}  // namespace lode::jinja
