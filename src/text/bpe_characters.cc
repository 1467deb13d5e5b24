// BPE over characters, as sentencepiece-style vocabularies have it: byte fallback, unknown characters, and
// cutting long words where no merge can cross.
#include <algorithm>

#include "text/bpe_model.h"
#include "text/unicode.h"

namespace lode::text {
namespace {

constexpr std::string_view kWordMark = "\u2581";
constexpr char32_t kWordMarkPoint = 0x2581;

}  // namespace

// All bytes of the character, or none.
bool BpeModel::fall_back(std::string_view character, std::vector<BpeScratch::Symbol>& symbols) const {
  if (!byte_fallback) return false;
  for (const char c : character) {
    if (byte_ids[static_cast<std::uint8_t>(c)] < 0) return false;
  }
  for (const char c : character) push_symbol(symbols, byte_ids[static_cast<std::uint8_t>(c)]);
  return true;
}

// Like the reference, an unknown token waits for the next character that is known or unknown: byte tokens
// overtake it.
void BpeModel::characters_to_symbols(std::string_view text, std::vector<BpeScratch::Symbol>& symbols) const {
  bool pending = false;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t start = i;
    const char32_t c = next_code_point(text, i);
    const std::int32_t id = c < character_ids.size() ? character_ids[c] : -1;
    if (id >= 0) {
      if (pending) push_symbol(symbols, *unknown_id);
      pending = false;
      push_symbol(symbols, id);
    } else if (!fall_back(text.substr(start, i - start), symbols) && unknown_id) {
      if (pending && !fuse_unknown) push_symbol(symbols, *unknown_id);
      pending = true;
    }
  }
  if (pending) push_symbol(symbols, *unknown_id);
}

void BpeModel::find_cuts(const std::vector<std::string_view>& merged_tokens) {
  has_cuts_ = kWordMarkPoint < character_ids.size() && character_ids[kWordMarkPoint] >= 0;
  glued_.assign(kWordMarkPoint + 1, false);
  for (const std::string_view token : merged_tokens) {
    for (std::size_t at = 0; (at = token.find(kWordMark, at)) != token.npos; at += kWordMark.size()) {
      if (at == 0) continue;
      std::size_t previous = previous_character(token, at);
      const char32_t c = next_code_point(token, previous);
      if (c >= glued_.size()) glued_.resize(c + 1, false);
      glued_[c] = true;
    }
  }
}

std::size_t BpeModel::next_cut(std::string_view word, std::size_t start) const {
  for (std::size_t at = start + 1; (at = word.find(kWordMark, at)) != word.npos; at += kWordMark.size()) {
    std::size_t previous = previous_character(word, at);
    const char32_t c = next_code_point(word, previous);
    if (c >= glued_.size() || !glued_[c]) return at;
  }
  return word.size();
}

}  // namespace lode::text
