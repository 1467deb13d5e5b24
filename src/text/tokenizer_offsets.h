// Tokens of a text together with where given places of it lie among them: the ground of loss masks.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace lode {

struct CutTokens {
  std::vector<std::int32_t> ids;
  std::vector<std::size_t> cuts;  // for each cut the index of the first token that begins at or after it
};

// The ids of encode(text), special tokens parsed and none added. `cuts` are byte positions of `text`,
// ascending; text.size() gives the number of ids. A normalizer may move characters together (composed
// accents): a token of such a character begins where the first of them does. `text` must be UTF-8.
CutTokens encode_with_cuts(const Tokenizer& tokenizer, std::string_view text,
                           std::span<const std::size_t> cuts);

}  // namespace lode
