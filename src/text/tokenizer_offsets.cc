#include "text/tokenizer_offsets.h"

#include <algorithm>

#include "core/fail.h"
#include "text/tokenizer_state.h"
#include "text/unicode.h"

namespace lode {
namespace {

using text::Scratch;
using text::TokenizerState;

// What a piece of text turned into: words as the model sees them, and tokens found after normalisation.
struct Spelled {
  struct Part {
    std::string text;
    std::size_t first_id = 0, end_id = 0;
  };
  std::vector<Part> parts;
  std::string text() const {
    std::string all;
    for (const Part& part : parts) all += part.text;
    return all;
  }
};

// A piece between two added tokens (`token` false), or an added token.
struct Segment {
  std::size_t begin = 0, end = 0;  // in the text
  std::size_t first_id = 0;
  bool token = false;
};

Spelled spell(const TokenizerState& state, std::string_view piece, bool at_start, Scratch& scratch,
              std::vector<std::int32_t>& ids) {
  Spelled spelled;
  const std::string normalized =
      state.normalizer.empty() ? std::string(piece) : state.normalizer.run(piece, scratch.regex);
  const auto word = [&](std::string_view bytes) {
    const std::size_t first = ids.size();
    state.model.encode_word(bytes, scratch.bpe, ids);
    spelled.parts.push_back({std::string(bytes), first, ids.size()});
  };
  const auto part = [&](std::string_view between) {
    state.pre_tokenizer.run(between, at_start && between.data() == normalized.data(), scratch.regex, word);
  };
  const auto token = [&](std::int32_t id) {
    ids.push_back(id);
    spelled.parts.push_back(
        {state.tokens[static_cast<std::size_t>(id)].spelling, ids.size() - 1, ids.size()});
  };
  state.normalized_tokens.split(normalized, true, scratch.regex, part, token);
  return spelled;
}

// How many bytes of `rest`, what is left of a word, token `i` of `ids` stands for.
std::size_t token_length(const TokenizerState& state, std::string_view rest,
                         std::span<const std::int32_t> ids, std::size_t i) {
  const auto& token = state.tokens[static_cast<std::size_t>(ids[i])];
  if (i + 1 == ids.size()) return rest.size();
  if (state.model.byte_level) return std::min(rest.size(), token.bytes.size());
  if (rest.starts_with(token.spelling)) return token.spelling.size();
  if (token.spelling.size() == 6 && token.spelling.starts_with("<0x"))
    return std::min<std::size_t>(rest.size(), 1);
  // The unknown token: at least a character, up to where the next token fits.
  const std::string& next = state.tokens[static_cast<std::size_t>(ids[i + 1])].spelling;
  std::size_t at = 0;
  do {
    text::next_code_point(rest, at);
  } while (at < rest.size() && !rest.substr(at).starts_with(next));
  return at;
}

// The first token of a piece that begins at or after `place` of its spelled text.
std::size_t first_token_from(const TokenizerState& state, const Spelled& spelled,
                             std::span<const std::int32_t> ids, std::size_t place, std::size_t end_id) {
  std::size_t begin = 0;
  for (const Spelled::Part& part : spelled.parts) {
    if (begin + part.text.size() > place) {
      const auto own = ids.subspan(part.first_id, part.end_id - part.first_id);
      std::string_view rest = part.text;
      for (std::size_t i = 0; i < own.size(); ++i) {
        if (begin >= place) return part.first_id + i;
        const std::size_t length = token_length(state, rest, own, i);
        begin += length;
        rest.remove_prefix(length);
      }
      if (begin >= place) return part.end_id;
    } else {
      begin += part.text.size();
    }
  }
  return end_id;
}

class Cutter {
 public:
  Cutter(const TokenizerState& state, std::string_view text, Scratch& scratch, CutTokens& out)
      : state_(state), text_(text), scratch_(scratch), out_(out) {}

  void run(std::span<const std::size_t> cuts) {
    const auto plain = [&](std::string_view piece) {
      const auto begin = static_cast<std::size_t>(piece.data() - text_.data());
      segments_.push_back({begin, begin + piece.size(), out_.ids.size(), false});
      pieces_.push_back(spell(state_, piece, begin == 0, scratch_, out_.ids));
      at_ = begin + piece.size();
    };
    const auto token = [&](std::int32_t id) {
      const std::string& content = state_.tokens[static_cast<std::size_t>(id)].spelling;
      const std::size_t begin = std::min(text_.find(content, at_), text_.size());
      at_ = std::min(begin + content.size(), text_.size());
      segments_.push_back({begin, at_, out_.ids.size(), true});
      pieces_.emplace_back();
      out_.ids.push_back(id);
    };
    state_.raw_tokens.split(text_, true, scratch_.regex, plain, token);
    for (const std::size_t cut : cuts) out_.cuts.push_back(token_of(cut));
  }

 private:
  std::size_t token_of(std::size_t cut) {
    const auto next =
        std::ranges::lower_bound(segments_, cut, {}, [](const Segment& segment) { return segment.begin; });
    const std::size_t end_id = next == segments_.end() ? out_.ids.size() : next->first_id;
    if (next == segments_.begin()) return end_id;
    const Segment& before = *(next - 1);
    if (before.token || cut >= before.end) return end_id;
    // The cut lies within a piece: what the piece up to there is spelled as tells where.
    const Spelled& spelled = pieces_[static_cast<std::size_t>(next - 1 - segments_.begin())];
    std::vector<std::int32_t> unused;
    const std::string whole = spelled.text();
    const std::string part =
        spell(state_, text_.substr(before.begin, cut - before.begin), before.begin == 0, scratch_, unused)
            .text();
    const auto same = std::ranges::mismatch(whole, part).in1 - whole.begin();
    return first_token_from(state_, spelled, out_.ids, static_cast<std::size_t>(same), end_id);
  }

  const TokenizerState& state_;
  std::string_view text_;
  Scratch& scratch_;
  CutTokens& out_;
  std::vector<Segment> segments_;
  std::vector<Spelled> pieces_;  // of each segment
  std::size_t at_ = 0;
};

}  // namespace

CutTokens encode_with_cuts(const Tokenizer& tokenizer, std::string_view text,
                           std::span<const std::size_t> cuts) {
  LODE_ASSERT(text::valid_utf8_prefix(text) == text.size());
  CutTokens out;
  const TokenizerState& state = tokenizer.state();
  std::unique_ptr<Scratch> scratch = state.scratch.take();
  Cutter(state, text, *scratch, out).run(cuts);
  state.scratch.give(std::move(scratch));
  return out;
}

}  // namespace lode
