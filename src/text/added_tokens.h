// Tokens found in the text itself, before pre-tokenisation: special tokens and words added later.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/parallel.h"
#include "text/regex.h"

namespace lode::text {

struct AddedToken {
  std::int32_t id = -1;
  std::string content;
  bool single_word = false;  // only between characters that are not \w
  bool lstrip = false;       // swallows white space on its left
  bool rstrip = false;       // and right
  bool normalized = true;    // looked for after normalisation, itself normalised
  bool special = false;
};

// Finds one set of added tokens in a text: leftmost, longest at the same start, not overlapping.
class AddedTokenMatcher {
 public:
  AddedTokenMatcher();

  // The first token added with a content wins. `content` must not be empty.
  void add(std::string_view content, const AddedToken& token);
  bool empty() const { return tokens_.empty(); }

  // Calls plain(piece) for the text between tokens (never empty) and found(id) for tokens, in order.
  // With `parse_special` false a special token's text stays text.
  void split(std::string_view text, bool parse_special, RegexScratch& scratch,
             FunctionRef<void(std::string_view)> plain, FunctionRef<void(std::int32_t)> found) const;

 private:
  struct Node {
    std::vector<std::pair<unsigned char, std::int32_t>> children;
    std::int32_t token = -1;
  };
  struct Found {
    std::size_t begin, end;
    std::int32_t token;
  };
  bool next(std::string_view text, std::size_t start, Found& found) const;
  bool word_at_edge(std::string_view text, const Found& found, RegexScratch& scratch) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<bool, 256> starts_{};
  Regex word_;
};

}  // namespace lode::text
