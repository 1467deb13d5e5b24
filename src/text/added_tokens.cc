#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace lode::text {
namespace {

std::size_t skip_space_left(std::string_view text, std::size_t end, std::size_t limit) {
  while (end > limit) {
    std::size_t at = previous_character(text, end);
    const std::size_t start = at;
    if (!is_white_space(next_code_point(text, at))) break;
    end = start;
  }
  return end;
}

std::size_t skip_space_right(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    std::size_t at = begin;
    if (!is_white_space(next_code_point(text, at))) break;
    begin = at;
  }
  return begin;
}

}  // namespace

// The reference tests word characters with another library than its pre-tokenizers, hence not \w.
AddedTokenMatcher::AddedTokenMatcher()
    : nodes_(1), word_(R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}])", "added_tokens") {}

void AddedTokenMatcher::add(std::string_view content, const AddedToken& token) {
  std::int32_t node = 0;
  for (const char c : content) {
    const auto byte = static_cast<unsigned char>(c);
    auto& children = nodes_[static_cast<std::size_t>(node)].children;
    const auto at = std::ranges::find(children, byte, [](const auto& child) { return child.first; });
    if (at != children.end()) {
      node = at->second;
      continue;
    }
    const auto added = static_cast<std::int32_t>(nodes_.size());
    children.emplace_back(byte, added);
    nodes_.emplace_back();
    node = added;
  }
  if (nodes_[static_cast<std::size_t>(node)].token >= 0) return;
  nodes_[static_cast<std::size_t>(node)].token = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(token);
  starts_[static_cast<unsigned char>(content.front())] = true;
}

bool AddedTokenMatcher::next(std::string_view text, std::size_t start, Found& found) const {
  for (std::size_t begin = start; begin < text.size(); begin++) {
    if (!starts_[static_cast<unsigned char>(text[begin])]) continue;
    std::int32_t node = 0;
    found.token = -1;
    for (std::size_t i = begin; i < text.size(); i++) {
      const auto& children = nodes_[static_cast<std::size_t>(node)].children;
      const auto byte = static_cast<unsigned char>(text[i]);
      const auto at = std::ranges::find(children, byte, [](const auto& child) { return child.first; });
      if (at == children.end()) break;
      node = at->second;
      if (const std::int32_t token = nodes_[static_cast<std::size_t>(node)].token; token >= 0) {
        found = {begin, i + 1, token};
      }
    }
    if (found.token >= 0) return true;
  }
  return false;
}

bool AddedTokenMatcher::word_at_edge(std::string_view text, const Found& found, RegexScratch& scratch) const {
  const auto is_word = [&](std::size_t at) {
    std::size_t end = at;
    next_code_point(text, end);
    const std::string_view character = text.substr(at, end - at);
    const std::string twin = with_stand_ins(character);
    RegexMatch match;
    return word_.find(twin.empty() ? character : std::string_view(twin), 0, scratch, match);
  };
  return (found.begin > 0 && is_word(previous_character(text, found.begin))) ||
         (found.end < text.size() && is_word(found.end));
}

void AddedTokenMatcher::split(std::string_view text, bool parse_special, RegexScratch& scratch,
                              FunctionRef<void(std::string_view)> plain,
                              FunctionRef<void(std::int32_t)> found_token) const {
  std::size_t done = 0;
  Found found{};
  for (std::size_t at = 0; !tokens_.empty() && next(text, at, found); at = found.end) {
    const AddedToken& token = tokens_[static_cast<std::size_t>(found.token)];
    if (token.special && !parse_special) continue;
    if (token.single_word && word_at_edge(text, found, scratch)) continue;
    std::size_t begin = found.begin;
    if (token.lstrip) begin = std::max(done, skip_space_left(text, begin, std::min(done, begin)));
    if (done < begin) plain(text.substr(done, begin - done));
    found_token(token.id);
    done = token.rstrip ? skip_space_right(text, found.end) : found.end;
  }
  if (done < text.size()) plain(text.substr(done));
}

}  // namespace lode::text
