// Cutting normalised text into pre-tokens: ByteLevel, Split, Digits and sequences of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/parallel.h"
#include "text/regex.h"

namespace lode::text {

// GPT-2's expression, which ByteLevel uses.
extern const std::string_view kGpt2Pattern;

class PreTokenizer {
 public:
  // `config` is tokenizer.json's "pre_tokenizer"; `what` names the file. Throws Error(data) for what is not
  // supported: the last step must be ByteLevel.
  PreTokenizer(const Json& config, const std::string& what);

  // Calls sink(word) for each pre-token of `piece` (valid UTF-8) in order; words are plain bytes, not the
  // byte alphabet, and valid during the call only.
  void run(std::string_view piece, RegexScratch& scratch, FunctionRef<void(std::string_view)> sink) const;

  // A line of text that says what this pre-tokenizer does, for fingerprints.
  const std::string& description() const { return description_; }

 private:
  enum class Unmatched { keep, drop };
  enum class Matched { keep, drop };
  struct Step {
    std::vector<Regex> regex;  // none or one
    Matched matched = Matched::keep;
    Unmatched unmatched = Unmatched::keep;
    bool add_prefix_space = false;
  };
  // A piece and its twin with stand-ins for characters unknown to the expressions; equal sizes.
  struct Piece {
    std::string_view text, twin;
    Piece part(std::size_t begin, std::size_t end) const {
      return {text.substr(begin, end - begin), twin.substr(begin, end - begin)};
    }
  };

  void add(const Json& config, const std::string& what);
  void add_split(const Json& config, const std::string& what);
  void add_step(std::string pattern, Matched matched, Unmatched unmatched, bool prefix,
                const std::string& what);
  void apply(std::size_t step, const Piece& piece, RegexScratch& scratch,
             FunctionRef<void(std::string_view)> sink) const;
  void cut(std::size_t step, const Piece& piece, RegexScratch& scratch,
           FunctionRef<void(std::string_view)> sink) const;

  std::vector<Step> steps_;
  bool byte_level_ = false;
  std::string description_;
};

}  // namespace lode::text
