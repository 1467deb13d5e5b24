#include "text/tokenizer_state.h"

#include <algorithm>

#include "core/fail.h"
#include "text/json_fields.h"
#include "text/unicode.h"

namespace lode::text {
namespace {

const Json& section(const Json& document, std::string_view key) {
  static const Json null;
  const Json* value = document.find(key);
  return value == nullptr ? null : *value;
}

void refuse(const std::string& what, std::string_view component) {
  fail(ErrorKind::data, "{}: {} is not supported", what, component);
}

// Bytes that UTF-8 text can contain.
bool occurs_in_utf8(int byte) {
  return byte < 0xC0 || (byte >= 0xC2 && byte <= 0xF4);
}

AddedToken read_added_token(const Json& entry, std::size_t index, const std::string& what) {
  const std::string where = format("added_tokens[{}]", index);
  AddedToken token;
  const std::int64_t id = int_field(entry, "id", where, what);
  if (id < 0 || id > kMaxTokenId) {
    fail(ErrorKind::data, "{}: {}: id {} is out of range, 0 to {}", what, where, id, kMaxTokenId);
  }
  token.id = static_cast<std::int32_t>(id);
  token.content = string_field(entry, "content", where, what);
  if (token.content.empty()) fail(ErrorKind::data, "{}: {}: content is empty", what, where);
  token.special = bool_field(entry, "special", false, where, what);
  token.single_word = bool_field(entry, "single_word", false, where, what);
  token.lstrip = bool_field(entry, "lstrip", false, where, what);
  token.rstrip = bool_field(entry, "rstrip", false, where, what);
  token.normalized = bool_field(entry, "normalized", !token.special, where, what);
  return token;
}

}  // namespace

std::unique_ptr<Scratch> ScratchPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const auto mine = std::ranges::find(free_, std::this_thread::get_id(), &Free::last_user);
      const auto taken = mine != free_.end() ? mine : free_.end() - 1;
      auto scratch = std::move(taken->scratch);
      free_.erase(taken);
      return scratch;
    }
  }
  return std::make_unique<Scratch>();
}

void ScratchPool::give(std::unique_ptr<Scratch> scratch) {
  const std::lock_guard lock(mutex_);
  free_.push_back({std::this_thread::get_id(), std::move(scratch)});
}

TokenizerState::TokenizerState(TokenizerSpec from, const std::string& what)
    : spec(std::move(from)),
      normalizer(section(spec.document, "normalizer"), what),
      pre_tokenizer(section(spec.document, "pre_tokenizer"), what),
      decoder(section(spec.document, "decoder"), what) {
  add_vocab(what);
  add_model(what);
  add_added_tokens(what);
  build_matchers();
  const auto is_token = [this](std::int64_t id) {
    return id >= 0 && id < static_cast<std::int64_t>(tokens.size()) &&
           tokens[static_cast<std::size_t>(id)].present;
  };
  PostProcessor processor(section(spec.document, "post_processor"), is_token, what);
  prefix = std::move(processor.prefix);
  suffix = std::move(processor.suffix);
  check_named(what);
}

void TokenizerState::add_token(std::int32_t id, const std::string& spelling, const std::string& what) {
  if (static_cast<std::size_t>(id) >= tokens.size()) tokens.resize(static_cast<std::size_t>(id) + 1);
  Token& token = tokens[static_cast<std::size_t>(id)];
  if (token.present) {
    fail(ErrorKind::data, "{}: the tokens \"{}\" and \"{}\" have the same id, {}", what, token.spelling,
         spelling, id);
  }
  token = {spelling, decoder.token_bytes(spelling), true, false};
  if (!ids.emplace(spelling, id).second)
    fail(ErrorKind::data, "{}: the token \"{}\" appears twice", what, spelling);
}

void TokenizerState::add_vocab(const std::string& what) {
  if (spec.vocab.empty()) fail(ErrorKind::data, "{}: model.vocab is empty", what);
  ids.reserve(spec.vocab.size());
  for (const auto& [token, id] : spec.vocab) add_token(id, token, what);
}

void TokenizerState::add_bytes(const Json& config, const std::string& what) {
  for (int b = 0; b < 256; b++) {
    std::string spelling;
    append_code_point(byte_to_character(static_cast<std::uint8_t>(b)), spelling);
    const auto at = ids.find(spelling);
    model.byte_ids[b] = at == ids.end() ? -1 : at->second;
    if (at == ids.end() && occurs_in_utf8(b)) missing_bytes++;
  }
  if (missing_bytes > 0 && bool_field(config, "byte_fallback", false, "model", what)) {
    refuse(what, "model.byte_fallback with bytes missing from the vocabulary");
  }
}

void TokenizerState::add_characters(const Json& config, const std::string& what) {
  model.byte_level = false;
  model.byte_fallback = bool_field(config, "byte_fallback", false, "model", what);
  for (int b = 0; b < 256; b++) {
    constexpr std::string_view digits = "0123456789ABCDEF";
    const auto at = ids.find(std::string("<0x") + digits[b / 16] + digits[b % 16] + ">");
    model.byte_ids[b] = at == ids.end() ? -1 : at->second;
    if (occurs_in_utf8(b) && (at == ids.end() || !model.byte_fallback)) missing_bytes++;
  }
  for (const auto& [token, id] : spec.vocab) {
    if (token.empty()) continue;
    std::size_t end = 0;
    const char32_t c = next_code_point(token, end);
    if (end != token.size()) continue;
    if (c >= model.character_ids.size()) model.character_ids.resize(c + 1, -1);
    model.character_ids[c] = id;
  }
}

void TokenizerState::add_unknown(const Json& config, const std::string& what) {
  const std::string unknown = optional_string_field(config, "unk_token", "model", what);
  if (!unknown.empty()) {
    const auto at = ids.find(unknown);
    if (at == ids.end())
      fail(ErrorKind::data, "{}: model.unk_token \"{}\" is not in model.vocab", what, unknown);
    model.unknown_id = at->second;
  }
  model.fuse_unknown = bool_field(config, "fuse_unk", false, "model", what);
}

void TokenizerState::add_model(const std::string& what) {
  const Json& config = spec.document.at("model");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!optional_string_field(config, key, "model", what).empty()) refuse(what, std::string("model.") + key);
  }
  const Json& dropout = section(config, "dropout");
  if (!dropout.is_null() && (!dropout.is_number() || dropout.as_double() != 0)) refuse(what, "model.dropout");
  if (pre_tokenizer.byte_level()) {
    add_bytes(config, what);
  } else {
    add_characters(config, what);
  }
  add_unknown(config, what);
  model.ignore_merges = bool_field(config, "ignore_merges", false, "model", what);
  if (model.ignore_merges) {
    for (const auto& [token, id] : spec.vocab) {
      if (!model.byte_level) {
        model.whole_words.emplace(token, id);
      } else if (in_alphabet(token)) {
        model.whole_words.emplace(alphabet_to_bytes(token), id);
      }
    }
  }
  add_merges(what);
}

void TokenizerState::add_merges(const std::string& what) {
  model.merges.reserve(spec.merges.size());
  std::uint32_t rank = 0;
  std::vector<std::string_view> merged_tokens;
  bool only_characters = true;  // no merge of an unknown or byte token, which spells another text
  std::string whole;
  for (const auto& [left, right] : spec.merges) {
    const std::string& a = tokens[static_cast<std::size_t>(left)].spelling;
    const std::string& b = tokens[static_cast<std::size_t>(right)].spelling;
    whole.assign(a).append(b);
    const auto merged = ids.find(whole);
    if (merged == ids.end()) {
      fail(ErrorKind::data, "{}: model.merges[{}]: \"{}\" + \"{}\" gives \"{}\", which is not in model.vocab",
           what, rank, a, b, whole);
    }
    model.merges.set(left, right, rank++, merged->second);
    if (model.byte_level) continue;
    merged_tokens.push_back(merged->first);
    for (const std::int32_t id : {left, right}) {
      const bool other =
          id == model.unknown_id || byte_of_token(tokens[static_cast<std::size_t>(id)].spelling) >= 0;
      only_characters = only_characters && !other;
    }
  }
  if (!model.byte_level && only_characters) model.find_cuts(merged_tokens);
}

// The id that the reference gives a new added token: the vocabulary's, else the next free one.
std::int32_t TokenizerState::expected_id(const std::string& content) const {
  if (const auto at = ids.find(content); at != ids.end()) return at->second;
  auto next = static_cast<std::int32_t>(spec.vocab.size());
  for (const AddedToken& token : added) next = std::max(next, token.id + 1);
  return next;
}

void TokenizerState::add_added_tokens(const std::string& what) {
  const Json& list = section(spec.document, "added_tokens");
  if (list.is_null()) return;
  if (!list.is_array())
    fail(ErrorKind::data, "{}: added_tokens must be an array, not {}", what, list.type_name());
  for (std::size_t i = 0; i < list.size(); i++) {
    const AddedToken token = read_added_token(list.as_array()[i], i, what);
    const std::int32_t expected = expected_id(token.content);
    if (token.id != expected) {
      fail(ErrorKind::data, "{}: added_tokens[{}]: \"{}\" has id {} where {} is expected ({})", what, i,
           token.content, token.id, expected,
           ids.contains(token.content) ? "its id in model.vocab" : "the next free id");
    }
    if (std::ranges::any_of(added, [&](const AddedToken& other) { return other.id == token.id; })) {
      fail(ErrorKind::data, "{}: added_tokens[{}]: the token \"{}\" appears twice", what, i, token.content);
    }
    if (!ids.contains(token.content)) add_token(token.id, token.content, what);
    tokens[static_cast<std::size_t>(token.id)].special = token.special;
    added.push_back(token);
  }
}

void TokenizerState::build_matchers() {
  RegexScratch regex;
  for (const bool special : {true, false}) {  // the first of equal contents wins: special ones
    for (const AddedToken& token : added) {
      if (token.special != special) continue;
      if (!token.normalized) {
        raw_tokens.add(token.content, token);
      } else if (const std::string content = normalizer.run(token.content, regex); !content.empty()) {
        normalized_tokens.add(content, token);
      }
    }
  }
}

void TokenizerState::check_named(const std::string& what) {
  const auto find = [&](const std::string& token, const char* key) -> std::optional<std::int32_t> {
    if (token.empty()) return std::nullopt;
    const auto at = ids.find(token);
    if (at != ids.end()) return at->second;
    fail(ErrorKind::data, "{}: the {} \"{}\" of tokenizer_config.json is not a token of this vocabulary",
         what, key, token);
  };
  bos = find(spec.named.bos, "bos_token");
  eos = find(spec.named.eos, "eos_token");
  pad = find(spec.named.pad, "pad_token");
}

}  // namespace lode::text
