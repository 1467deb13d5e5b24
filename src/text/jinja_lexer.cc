#include "text/jinja_lexer.h"

#include <algorithm>
#include <array>

#include "core/fail.h"
#include "text/jinja_text.h"
#include "text/unicode.h"

namespace lode::jinja {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

std::string normalize_newlines(std::string_view source) {
  std::string result;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      result += source[i];
    } else {
      result += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (result.ends_with('\n')) result.pop_back();
  return result;
}

class Lexer {
 public:
  Lexer(std::string source, std::string_view what) : source_(std::move(source)), what_(what) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_template();
    add(Token::Type::end, {});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void error(std::string_view message) const {
    fail(ErrorKind::data, "{}: line {}: {}", what_, line_, message);
  }

  bool looking_at(std::string_view text) const { return rest().starts_with(text); }
  std::string_view rest() const { return std::string_view(source_).substr(at_); }

  void add(Token::Type type, std::string value) { tokens_.push_back({type, std::move(value), line_}); }

  // Moves on, counting lines.
  void advance(std::size_t bytes) {
    const std::string_view taken = rest().substr(0, bytes);
    line_ += static_cast<int>(std::ranges::count(taken, '\n'));
    at_ += taken.size();
    if (!taken.empty()) line_starting_ = taken.back() == '\n';
  }

  void skip_space() {
    std::size_t end = at_;
    while (end < source_.size()) {
      std::size_t next = end;
      if (!is_space(read_character(source_, next))) break;
      end = next;
    }
    advance(end - at_);
  }

  void add_data(std::string_view text) {
    if (!text.empty()) add(Token::Type::data, std::string(text));
  }

  // `text` before a tag that begins with `sign`.
  std::string_view trim_before(std::string_view text, char sign, bool variable, bool line_starting) const {
    if (sign == '-') return text.substr(0, strip_range(text, false, true).end);
    if (sign == '+' || variable) return text;
    const std::size_t newline = text.rfind('\n');
    if (newline == std::string_view::npos && !line_starting) return text;
    const std::size_t start = newline == std::string_view::npos ? 0 : newline + 1;
    const Range kept = strip_range(text.substr(start), true, false);
    return kept.begin == kept.end ? text.substr(0, start) : text;
  }

  char sign_at(std::size_t at) const {
    const char c = at < source_.size() ? source_[at] : '\0';
    return c == '-' || c == '+' ? c : '\0';
  }

  void read_template() {
    std::size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        add_data(rest());
        advance(source_.size() - at_);
        return;
      }
      const char next = source_[tag + 1];
      if (next == '%' || next == '{' || next == '#') break;
    }
    const char kind = source_[tag + 1];
    const char sign = sign_at(tag + 2);
    const std::string_view text = rest().substr(0, tag - at_);
    add_data(trim_before(text, sign, kind == '{', line_starting_));
    advance(text.size() + 2 + (sign != '\0' ? 1 : 0));
    if (kind == '#') return read_comment();
    if (kind == '%' && read_raw()) return;
    add(kind == '%' ? Token::Type::block_begin : Token::Type::variable_begin, {});
    read_expression(kind == '%');
  }

  void read_comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string::npos) error("a comment has no end: expected #}");
    const char before = end > at_ ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    after_block(before);
  }

  // What follows the end of a block or comment whose sign is `before`.
  void after_block(char before) {
    if (before == '-') {
      skip_space();
    } else if (before != '+' && looking_at("\n")) {
      advance(1);
    }
  }

  static std::size_t skip_spaces(std::string_view text, std::size_t at) {
    while (at < text.size()) {
      std::size_t next = at;
      if (!is_space(read_character(text, next))) break;
      at = next;
    }
    return at;
  }

  // Behind `word` and the end of its tag when the tag at `at` (behind its sign) is that; else npos.
  std::size_t simple_tag_end(std::size_t at, std::string_view word, char& sign) const {
    at = skip_spaces(source_, at);
    if (source_.compare(at, word.size(), word) != 0) return std::string::npos;
    at = skip_spaces(source_, at + word.size());
    sign = sign_at(at);
    if (sign != '\0') ++at;
    return source_.compare(at, 2, "%}") == 0 ? at + 2 : std::string::npos;
  }

  // At a block tag behind its sign: a raw block is read whole.
  bool read_raw() {
    char sign = '\0';
    const std::size_t body = simple_tag_end(at_, "raw", sign);
    if (body == std::string::npos || sign == '+') return false;
    advance(body - at_);
    if (sign == '-') skip_space();
    for (std::size_t tag = at_; (tag = source_.find("{%", tag)) != std::string::npos; tag += 2) {
      const char begin_sign = sign_at(tag + 2);
      const std::size_t end = simple_tag_end(tag + 2 + (begin_sign != '\0' ? 1 : 0), "endraw", sign);
      if (end == std::string::npos) continue;
      add_data(trim_before(rest().substr(0, tag - at_), begin_sign, false, line_starting_));
      advance(end - at_);
      after_block(sign);
      return true;
    }
    error("a raw block has no end: expected {% endraw %}");
  }

  void read_expression(bool block) {
    std::string open;  // brackets not closed yet
    const std::string_view close = block ? "%}" : "}}";
    const auto end_type = block ? Token::Type::block_end : Token::Type::variable_end;
    for (;;) {
      skip_space();
      if (at_ >= source_.size())
        error(block ? "a tag has no end: expected %}" : "a print has no end: expected }}");
      if (open.empty()) {
        const char sign = sign_at(at_);
        const bool signed_end =
            (sign == '-' || (sign == '+' && block)) && rest().substr(1).starts_with(close);
        if (signed_end || looking_at(close)) {
          add(end_type, {});
          advance(close.size() + (signed_end ? 1 : 0));
          const char before = signed_end ? sign : '\0';
          if (block || before == '-') after_block(before);
          return;
        }
      }
      read_token(open);
    }
  }

  void read_token(std::string& open) {
    const char c = source_[at_];
    if (is_digit(c)) return read_number();
    if (begins_name(c)) {
      std::size_t end = at_;
      while (end < source_.size() && (begins_name(source_[end]) || is_digit(source_[end]))) ++end;
      add(Token::Type::name, source_.substr(at_, end - at_));
      return advance(end - at_);
    }
    if (c == '"' || c == '\'') return read_string(c);
    read_symbol(open);
  }

  void read_symbol(std::string& open) {
    static constexpr std::array<std::string_view, 28> kSymbols = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]",
        "(",  ")",  "{",  "}",  ">",  "<",  "=", ".", ":", "|", ",", ";", "",  ""};
    for (const std::string_view symbol : kSymbols) {
      if (symbol.empty() || !looking_at(symbol)) continue;
      const char c = symbol[0];
      if (c == '(') open += ')';
      if (c == '[') open += ']';
      if (c == '{') open += '}';
      if (c == ')' || c == ']' || c == '}') {
        if (open.empty()) error(lode::format("unexpected \"{}\"", symbol));
        if (open.back() != c)
          error(lode::format("expected \"{}\", found \"{}\"", open.substr(open.size() - 1), symbol));
        open.pop_back();
      }
      add(Token::Type::symbol, std::string(symbol));
      return advance(symbol.size());
    }
    error(lode::format("unexpected character \"{}\" in an expression", rest().substr(0, 1)));
  }

  std::size_t skip_digits(std::size_t at) const {
    while (at < source_.size() && (is_digit(source_[at]) || (source_[at] == '_' && at + 1 < source_.size() &&
                                                             is_digit(source_[at + 1])))) {
      ++at;
    }
    return at;
  }

  void read_number() {
    std::size_t end = skip_digits(at_);
    bool real = false;
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    const auto digit_at = [&](std::size_t at) { return at < source_.size() && is_digit(source_[at]); };
    if (!after_dot && end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
      real = true;
      end = skip_digits(end + 1);
    }
    if (!after_dot && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const std::size_t power = end + 1 + (sign_at(end + 1) != '\0' ? 1 : 0);
      if (digit_at(power)) {
        real = true;
        end = skip_digits(power);
      }
    }
    std::string digits = source_.substr(at_, end - at_);
    std::erase(digits, '_');
    add(real ? Token::Type::real : Token::Type::integer, digits);
    advance(end - at_);
  }

  void read_string(char quote) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) error("a string has no end");
    add(Token::Type::string, unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    advance(end + 1 - at_);
  }

  // Escapes as in Python; an unknown one stays as it is.
  std::string unescape(std::string_view text) const {
    std::string result;
    for (std::size_t at = 0; at < text.size();) {
      if (text[at] != '\\') {
        result += text[at++];
        continue;
      }
      static constexpr std::string_view kFrom = "\n\\'\"abfnrtv";
      static constexpr std::string_view kTo = "\n\\'\"\a\b\f\n\r\t\v";
      const char c = text[at + 1];
      at += 2;
      if (const auto known = kFrom.find(c); known != std::string_view::npos) {
        if (c != '\n') result += kTo[known];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        append_number(text, at, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16, true, result);
      } else if (c >= '0' && c <= '7') {
        --at;
        append_number(text, at, 3, 8, false, result);
      } else {
        result += '\\';
        result += c;
      }
    }
    return result;
  }

  void append_number(std::string_view text, std::size_t& at, int digits, unsigned base, bool exact,
                     std::string& result) const {
    std::uint64_t code = 0;
    int read = 0;
    for (; read < digits && at < text.size(); ++read, ++at) {
      const char c = text[at];
      const unsigned digit = is_digit(c)            ? static_cast<unsigned>(c - '0')
                             : c >= 'a' && c <= 'f' ? static_cast<unsigned>(c - 'a' + 10)
                             : c >= 'A' && c <= 'F' ? static_cast<unsigned>(c - 'A' + 10)
                                                    : 99U;
      if (digit >= base) break;
      code = code * base + digit;
    }
    if ((exact && read != digits) || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      error("a string has an escape that is no character");
    }
    text::append_code_point(static_cast<char32_t>(code), result);
  }

  std::string source_;
  std::string_view what_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, std::string_view what) {
  return Lexer(normalize_newlines(source), what).run();
}

}  // namespace lode::jinja
