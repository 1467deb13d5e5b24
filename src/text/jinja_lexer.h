// Template source to tokens, with the white-space rules of chat templates (trim_blocks, lstrip_blocks).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lode::jinja {

struct Token {
  enum class Type {
    data,
    variable_begin,
    variable_end,
    block_begin,
    block_end,
    name,
    string,
    integer,
    real,
    symbol,
    end
  };
  Type type = Type::end;
  std::string value;  // decoded for strings
  int line = 1;
};

// Ends with a token of type end. Throws Error(data) "what: line N: ...".
std::vector<Token> tokenize(std::string_view source, std::string_view what);

}  // namespace lode::jinja
