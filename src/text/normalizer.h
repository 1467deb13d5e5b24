// Rewriting text before it is cut: tokenizer.json's "normalizer".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "text/regex.h"
#include "text/unicode.h"

namespace lode::text {

class Normalizer {
 public:
  // `config` may be null: nothing is changed. `what` names the file. Throws Error(data) for what is not
  // supported.
  Normalizer(const Json& config, const std::string& what);

  // `text` must be valid UTF-8, and so is the result.
  std::string run(std::string_view text, RegexScratch& scratch) const;

  bool empty() const { return steps_.empty(); }
  bool only_nfc() const;
  const std::string& description() const { return description_; }  // for fingerprints

 private:
  enum class Kind { form, lowercase, strip, strip_accents, replace, prepend, byte_level };
  struct Step {
    Kind kind;
    NormalForm form = NormalForm::nfc;
    bool left = false, right = false;  // strip
    std::vector<Regex> regex;          // replace: none or one
    std::string pattern, content;      // replace without regex: the literal; prepend: content
  };
  void add(const Json& config, const std::string& what);
  void add_step(Step step, std::string_view name);
  void add_replace(const Json& config, const std::string& what);
  static std::string apply(const Step& step, std::string text, RegexScratch& scratch);

  std::vector<Step> steps_;
  std::string description_;
};

// Every occurrence of `from`, which is not empty, left to right.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

}  // namespace lode::text
