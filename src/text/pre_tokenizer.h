// Cutting normalised text into pre-tokens: tokenizer.json's "pre_tokenizer".
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
  // `config` may be null: a piece is one pre-token. `what` names the file. Throws Error(data) for what is not
  // supported; ByteLevel must be the last step.
  PreTokenizer(const Json& config, const std::string& what);

  // Calls sink(word) for each pre-token of `piece` (valid UTF-8) in order; words are plain bytes, not the
  // byte alphabet, and valid during the call only. `at_start`: no text and no token precedes the piece.
  void run(std::string_view piece, bool at_start, RegexScratch& scratch,
           FunctionRef<void(std::string_view)> sink) const;

  // Whether the vocabulary spells words in the byte alphabet.
  bool byte_level() const { return byte_level_; }
  // A line of text for each step, for fingerprints.
  const std::string& description() const { return description_; }

 private:
  enum class Behavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };
  enum class Prefix { none, always, first };
  struct Step {
    std::vector<Regex> regex;  // none or one
    Behavior behavior = Behavior::isolated;
    bool invert = false;
    Prefix prefix = Prefix::none;
    std::string space = " ";  // what a prefix consists of
    bool replace_spaces = false;
  };
  // A piece and its twin with stand-ins for characters unknown to the expressions; equal sizes.
  struct Piece {
    std::string_view text, twin;
    bool at_start;
    Piece part(std::size_t begin, std::size_t end) const {
      return {text.substr(begin, end - begin), twin.substr(begin, end - begin), at_start && begin == 0};
    }
  };
  struct Span {
    std::size_t begin, end;
    bool match;
  };

  void add(const Json& config, const std::string& what);
  void add_split(const Json& config, const std::string& what);
  void add_metaspace(const Json& config, const std::string& what);
  void add_step(Step step, const std::string& pattern, const std::string& what);
  static Behavior behavior_of(std::string_view name, const std::string& what);
  void apply(std::size_t step, const Piece& piece, RegexScratch& scratch,
             FunctionRef<void(std::string_view)> sink) const;
  void cut(std::size_t step, const Piece& piece, RegexScratch& scratch,
           FunctionRef<void(std::string_view)> sink) const;
  static std::vector<Span> join(const std::vector<Span>& spans, Behavior behavior);

  std::vector<Step> steps_;
  bool byte_level_ = false;
  std::string description_;
};

}  // namespace lode::text
