// Regular expressions of tokenizers: Oniguruma's Ruby dialect as the reference uses it, matched by PCRE2 with
// JIT.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace lode::text {

// Match state of one thread; usable with every Regex.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct RegexMatch {
  std::size_t begin = 0, end = 0;  // bytes
};

// Immutable after construction; find() may be called from several threads, each with its own scratch.
class Regex {
 public:
  // Throws Error(data) naming `what` for a pattern that is broken or uses a construct whose meaning differs
  // here.
  Regex(std::string_view pattern, std::string what);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // The first non-empty match at or after `start`. `text` must be valid UTF-8. Throws Error(data) when the
  // pattern needs more backtracking than its limit.
  bool find(std::string_view text, std::size_t start, RegexScratch& scratch, RegexMatch& match) const;

  static std::string quote(std::string_view literal);  // a pattern that matches exactly `literal`

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The pattern in PCRE2's dialect; exposed for tests.
std::string translate_pattern(std::string_view pattern, std::string_view what);

}  // namespace lode::text
