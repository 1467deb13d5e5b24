#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <pcre2.h>

#include <array>

#include "core/fail.h"

namespace lode::text {
namespace {

// Oniguruma's \w, written with PCRE2's properties; \s is White_Space (PCRE2's own adds U+180E).
constexpr std::string_view kWordItems = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";

// Rewrites a pattern item by item. Constructs whose meaning differs between the dialects are refused.
class Translator {
 public:
  Translator(std::string_view pattern, std::string_view what) : pattern_(pattern), what_(what) {}

  std::string run() {
    while (at_ < pattern_.size()) item();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view construct) const {
    fail(ErrorKind::data, "{}: the regular expression \"{}\" uses {}, which is not supported", what_,
         pattern_, construct);
  }
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  bool starts(std::string_view prefix) const { return pattern_.substr(at_).starts_with(prefix); }
  void copy(std::size_t n) {
    out_.append(pattern_.substr(at_, n));
    at_ = std::min(at_ + n, pattern_.size());
  }

  void item() {
    switch (peek()) {
      case '\\':
        return escape(false);
      case '[':
        return char_class();
      case '(':
        return group();
      case '{':
        return interval();
      default:
        return copy(1);
    }
  }

  void group() {
    if (peek(1) != '?' && peek(1) != '*') return copy(1);
    for (const std::string_view known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"}) {
      if (starts(known)) return copy(known.size());
    }
    if (at_ == 0 && starts("(?i)")) return copy(4);
    refuse("the group \"" + std::string(pattern_.substr(at_, 4)) + "\"");
  }

  void interval() {
    const std::size_t close = pattern_.find('}', at_);
    const std::string_view body = pattern_.substr(at_ + 1, close == pattern_.npos ? 0 : close - at_ - 1);
    if (body.empty() || body[0] == ',' || body.find_first_not_of("0123456789,") != body.npos)
      refuse("an unescaped {");
    copy(body.size() + 2);
    // Here Ruby repeats the interval, or makes it optional.
    if (peek() == '+' || (peek() == '?' && body.find(',') == body.npos)) refuse("a quantified interval");
  }

  void char_class() {
    copy(1);
    if (peek() == '^') copy(1);
    if (peek() == ']') refuse("an empty character class");
    while (peek() != ']') {
      if (at_ >= pattern_.size()) refuse("an unclosed character class");
      if (peek() == '[') refuse("a nested character class");
      if (starts("&&")) refuse("an intersection of character classes");
      if (peek() == '\\') {
        escape(true);
      } else {
        copy(1);
      }
    }
    copy(1);
  }

  void escape(bool in_class) {
    const char c = peek(1);
    switch (c) {
      case 's':
        return replace(2, R"(\p{White_Space})");
      case 'S':
        return replace(2, R"(\P{White_Space})");
      case 'v':
        return replace(2, R"(\x0b)");
      case 'w':
        return replace(2, in_class ? std::string(kWordItems) : "[" + std::string(kWordItems) + "]");
      case 'W':
        if (in_class) refuse("\\W inside a character class");
        return replace(2, "[^" + std::string(kWordItems) + "]");
      case 'd':
      case 'D':
      case 'r':
      case 'n':
      case 't':
      case 'f':
      case 'e':
      case 'a':
        return copy(2);
      case 'p':
      case 'P':
        return property();
      case 'u':
        return hex(4, "\\u");
      case 'x':
        if (peek(2) == '{') return property();
        return hex(2, "\\x");
      case 'A':
      case 'z':
        if (!in_class) return copy(2);
        break;
      default:
        break;
    }
    if (c == '\0') refuse("a backslash at its end");
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      refuse("\"" + std::string(pattern_.substr(at_, 2)) + "\"");
    }
    copy(2);
  }

  void property() {
    const std::size_t close = pattern_.find('}', at_);
    if (peek(2) != '{' || close == pattern_.npos) refuse("a property without braces");
    const std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
    if (name == "Han" && peek(1) != 'x') {  // PCRE2 would take the script's extensions too
      replace(name.size() + 4, peek(1) == 'p' ? R"(\p{Script=Han})" : R"(\P{Script=Han})");
      return;
    }
    copy(close + 1 - at_);
  }

  void hex(std::size_t digits, std::string_view name) {
    const std::string_view value = pattern_.substr(at_ + 2, digits);
    const bool good =
        value.size() == digits && value.find_first_not_of("0123456789abcdefABCDEF") == value.npos;
    if (!good || (digits == 2 && value[0] > '7')) refuse(std::string(name) + " with such digits");
    replace(digits + 2, "\\x{" + std::string(value) + "}");
  }

  void replace(std::size_t n, std::string_view with) {
    at_ += n;
    out_.append(with);
  }

  std::string_view pattern_, what_;
  std::size_t at_ = 0;
  std::string out_;
};

std::string pcre_message(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

std::string translate_pattern(std::string_view pattern, std::string_view what) {
  return Translator(pattern, what).run();
}

struct RegexScratch::Impl {
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, 16 << 20, nullptr);
  Impl() {
    if (match == nullptr || context == nullptr) fail(ErrorKind::memory, "no memory for regular expressions");
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Impl() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
  }
};

RegexScratch::RegexScratch() : impl_(std::make_unique<Impl>()) {}
RegexScratch::~RegexScratch() = default;

struct Regex::Impl {
  std::string pattern, what;
  pcre2_code* code = nullptr;
  bool jit = false;
  ~Impl() { pcre2_code_free(code); }
};

Regex::Regex(std::string_view pattern, std::string what) : impl_(std::make_unique<Impl>()) {
  impl_->pattern = pattern;
  impl_->what = std::move(what);
  const std::string translated = translate_pattern(pattern, impl_->what);
  int error = 0;
  std::size_t at = 0;
  impl_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr);
  if (impl_->code == nullptr) {
    fail(ErrorKind::data, "{}: the regular expression \"{}\" is not supported: {}", impl_->what, pattern,
         pcre_message(error));
  }
  // Without JIT (a hardened kernel may forbid it) the interpreter gives the same matches, only slower.
  impl_->jit = pcre2_jit_compile(impl_->code, PCRE2_JIT_COMPLETE) == 0;
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

bool Regex::find(std::string_view text, std::size_t start, RegexScratch& scratch, RegexMatch& match) const {
  RegexScratch::Impl& state = *scratch.impl_;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int found = PCRE2_ERROR_JIT_STACKLIMIT;
  if (impl_->jit) {
    found =
        pcre2_jit_match(impl_->code, subject, text.size(), start, PCRE2_NOTEMPTY, state.match, state.context);
  }
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
    const std::uint32_t options = PCRE2_NOTEMPTY | PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT;
    found = pcre2_match(impl_->code, subject, text.size(), start, options, state.match, state.context);
  }
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0) {
    fail(ErrorKind::data, "{}: the regular expression \"{}\" fails on {} of text: {}", impl_->what,
         impl_->pattern, format_bytes(text.size()), pcre_message(found));
  }
  const std::size_t* ends = pcre2_get_ovector_pointer(state.match);
  match = {ends[0], ends[1]};
  return true;
}

std::string Regex::quote(std::string_view literal) {
  std::string out;
  for (const char c : literal) {
    if (std::string_view("\\^$.[]|()?*+{}-&#/").find(c) != std::string_view::npos) out.push_back('\\');
    out.push_back(c);
  }
  return out;
}

}  // namespace lode::text
