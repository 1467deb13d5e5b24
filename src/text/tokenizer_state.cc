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
  fail(ErrorKind::data, "{}: {} is not supported (byte-level BPE only)", what, component);
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
      auto scratch = std::move(free_.back());
      free_.pop_back();
      return scratch;
    }
  }
  return std::make_unique<Scratch>();
}

void ScratchPool::give(std::unique_ptr<Scratch> scratch) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(scratch));
}

TokenizerState::TokenizerState(TokenizerSpec from, const std::string& what)
    : spec(std::move(from)), pre_tokenizer(section(spec.document, "pre_tokenizer"), what) {
  read_normalizer(section(spec.document, "normalizer"), what);
  read_decoder(section(spec.document, "decoder"), what);
  add_vocab(what);
  add_model(what);
  add_added_tokens(what);
  build_matchers();
  read_post_processor(section(spec.document, "post_processor"), what);
  check_named(what);
}

void TokenizerState::add_token(std::int32_t id, const std::string& spelling, const std::string& what) {
  if (static_cast<std::size_t>(id) >= tokens.size()) tokens.resize(static_cast<std::size_t>(id) + 1);
  Token& token = tokens[static_cast<std::size_t>(id)];
  if (token.present) {
    fail(ErrorKind::data, "{}: the tokens \"{}\" and \"{}\" have the same id, {}", what, token.spelling,
         spelling, id);
  }
  token = {spelling, alphabet_to_bytes(spelling), true, false};
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
  const std::string unknown = optional_string_field(config, "unk_token", "model", what);
  if (!unknown.empty()) {
    const auto at = ids.find(unknown);
    if (at == ids.end())
      fail(ErrorKind::data, "{}: model.unk_token \"{}\" is not in model.vocab", what, unknown);
    model.unknown_id = at->second;
  }
  model.fuse_unknown = bool_field(config, "fuse_unk", false, "model", what);
  if (missing_bytes > 0 && bool_field(config, "byte_fallback", false, "model", what)) {
    refuse(what, "model.byte_fallback with bytes missing from the vocabulary");
  }
}

void TokenizerState::add_model(const std::string& what) {
  const Json& config = spec.document.at("model");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!optional_string_field(config, key, "model", what).empty()) refuse(what, std::string("model.") + key);
  }
  const Json& dropout = section(config, "dropout");
  if (!dropout.is_null() && (!dropout.is_number() || dropout.as_double() != 0)) refuse(what, "model.dropout");
  add_bytes(config, what);
  model.ignore_merges = bool_field(config, "ignore_merges", false, "model", what);
  if (model.ignore_merges) {
    for (const auto& [token, id] : spec.vocab) {
      if (in_alphabet(token)) model.whole_words.emplace(alphabet_to_bytes(token), id);
    }
  }
  model.merges.reserve(spec.merges.size());
  std::uint32_t rank = 0;
  for (const auto& [left, right] : spec.merges) {
    const std::string& a = tokens[static_cast<std::size_t>(left)].spelling;
    const std::string& b = tokens[static_cast<std::size_t>(right)].spelling;
    const auto merged = ids.find(a + b);
    if (merged == ids.end()) {
      fail(ErrorKind::data, "{}: model.merges[{}]: \"{}\" + \"{}\" gives \"{}\", which is not in model.vocab",
           what, rank, a, b, a + b);
    }
    model.merges.set(left, right, rank++, merged->second);
  }
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
  for (const bool special : {true, false}) {  // the first of equal contents wins: special ones
    for (const AddedToken& token : added) {
      if (token.special != special) continue;
      if (!token.normalized) {
        raw_tokens.add(token.content, token);
      } else if (const std::string content = nfc ? text::nfc(token.content) : token.content;
                 !content.empty()) {
        normalized_tokens.add(content, token);
      }
    }
  }
}

void TokenizerState::read_normalizer(const Json& config, const std::string& what) {
  if (config.is_null()) return;
  const std::string type = type_of(config, "normalizer", what);
  if (type == "Sequence") {
    for (const Json& part : array_field(config, "normalizers", "normalizer", what))
      read_normalizer(part, what);
  } else if (type == "NFC") {
    nfc = true;
  } else {
    fail(ErrorKind::data, "{}: normalizer {} is not supported (known: NFC, Sequence)", what, type);
  }
}

void TokenizerState::read_decoder(const Json& config, const std::string& what) const {
  if (config.is_null()) refuse(what, "decoder null");
  const std::string type = type_of(config, "decoder", what);
  if (type == "ByteLevel") return;
  if (type == "Sequence" && array_field(config, "decoders", "decoder", what).size() == 1) {
    return read_decoder(config.at("decoders").as_array()[0], what);
  }
  fail(ErrorKind::data, "{}: decoder {} is not supported (known: ByteLevel)", what, type);
}

void TokenizerState::read_post_processor(const Json& config, const std::string& what) {
  if (config.is_null()) return;
  const std::string type = type_of(config, "post_processor", what);
  if (type == "Sequence") {
    for (const Json& part : array_field(config, "processors", "post_processor", what))
      read_post_processor(part, what);
  } else if (type == "TemplateProcessing") {
    read_template(config, what);
  } else if (type != "ByteLevel") {
    fail(ErrorKind::data,
         "{}: post_processor {} is not supported (known: ByteLevel, TemplateProcessing, Sequence)", what,
         type);
  }
}

void TokenizerState::read_template(const Json& config, const std::string& what) {
  constexpr std::string_view where = "post_processor TemplateProcessing";
  std::vector<std::int32_t> before, after;
  int sequences = 0;
  for (const Json& piece : array_field(config, "single", where, what)) {
    if (const Json* sequence = piece.find("Sequence")) {
      if (string_field(*sequence, "id", where, what) != "A")
        refuse(what, "a single template with another id than A");
      sequences++;
      continue;
    }
    const std::string name = string_field(field(piece, "SpecialToken", where, what), "id", where, what);
    const Json& entry = field(field(config, "special_tokens", where, what), name, where, what);
    for (const Json& id : array_field(entry, "ids", where, what)) {
      if (!id.is_int() || id.as_int() < 0 || id.as_int() >= static_cast<std::int64_t>(tokens.size()) ||
          !tokens[static_cast<std::size_t>(id.as_int())].present) {
        fail(ErrorKind::data, "{}: {}: special_tokens \"{}\": {} is not the id of a token", what, where, name,
             id.dump());
      }
      (sequences == 0 ? before : after).push_back(static_cast<std::int32_t>(id.as_int()));
    }
  }
  if (sequences != 1) fail(ErrorKind::data, "{}: {}: single must hold the sequence A once", what, where);
  prefix.insert(prefix.begin(), before.begin(), before.end());
  suffix.insert(suffix.end(), after.begin(), after.end());
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
