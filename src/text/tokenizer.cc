#include "text/tokenizer.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/fail.h"
#include "text/tokenizer_spec.h"
#include "text/tokenizer_state.h"
#include "text/unicode.h"

namespace lode {
namespace {

// Feeds length-prefixed fields to the hash, so that no two sequences of fields look alike.
class Fingerprint {
 public:
  void add(std::string_view text) {
    add(static_cast<std::int64_t>(text.size()));
    bytes_.append(text);
  }
  void add(std::int64_t value) {
    for (int i = 0; i < 8; i++)
      bytes_.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i)));
  }
  std::string hex() const {
    const std::uint64_t hash = XXH64(bytes_.data(), bytes_.size(), 0);
    std::string out;
    for (int shift = 60; shift >= 0; shift -= 4) out.push_back("0123456789abcdef"[hash >> shift & 15]);
    return out;
  }

 private:
  std::string bytes_;
};

class ScratchLoan {
 public:
  explicit ScratchLoan(text::ScratchPool& pool) : pool_(pool), scratch_(pool.take()) {}
  ~ScratchLoan() { pool_.give(std::move(scratch_)); }
  ScratchLoan(const ScratchLoan&) = delete;
  ScratchLoan& operator=(const ScratchLoan&) = delete;
  text::Scratch& operator*() { return *scratch_; }

 private:
  text::ScratchPool& pool_;
  std::unique_ptr<text::Scratch> scratch_;
};

void encode_valid(const text::TokenizerState& state, std::string_view text, bool parse_special,
                  std::vector<std::int32_t>& ids) {
  ScratchLoan loan(state.scratch);
  text::Scratch& scratch = *loan;
  const auto word = [&](std::string_view bytes) { state.model.encode_word(bytes, scratch.bpe, ids); };
  const auto token = [&](std::int32_t id) { ids.push_back(id); };
  const auto raw_piece = [&](std::string_view piece) {
    const bool plain = state.normalizer.empty();
    const std::string normalized = plain ? std::string() : state.normalizer.run(piece, scratch.regex);
    const std::string_view changed = plain ? piece : std::string_view(normalized);
    const bool at_start = piece.data() == text.data();
    const auto normalized_piece = [&](std::string_view part) {
      state.pre_tokenizer.run(part, at_start && part.data() == changed.data(), scratch.regex, word);
    };
    state.normalized_tokens.split(changed, parse_special, scratch.regex, normalized_piece, token);
  };
  state.raw_tokens.split(text, parse_special, scratch.regex, raw_piece, token);
}

}  // namespace

Tokenizer::Tokenizer(std::shared_ptr<const text::TokenizerState> state) : state_(std::move(state)) {}

Tokenizer Tokenizer::load(FileSystem& files, const std::string& path) {
  const std::string file = files.is_directory(path) ? join_path(path, "tokenizer.json") : path;
  if (!files.exists(file))
    fail(ErrorKind::data, "{}: no such file; a tokenizer is a folder with tokenizer.json", file);
  return from_spec(text::read_tokenizer(files, file), file);
}

Tokenizer Tokenizer::from_spec(text::TokenizerSpec spec, const std::string& what) {
  return Tokenizer(std::make_shared<const text::TokenizerState>(std::move(spec), what));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 4 + 8);  // a token has about four bytes
  encode_to(text, ids, options);
  return ids;
}

void Tokenizer::encode_to(std::string_view text, std::vector<std::int32_t>& ids,
                          EncodeOptions options) const {
  const auto& state = *state_;
  if (options.add_special_tokens) ids.insert(ids.end(), state.prefix.begin(), state.prefix.end());
  if (text::valid_utf8_prefix(text) == text.size()) {
    encode_valid(state, text, options.parse_special, ids);
  } else {
    encode_valid(state, text::lossy_utf8(text), options.parse_special, ids);
  }
  if (options.add_special_tokens) ids.insert(ids.end(), state.suffix.begin(), state.suffix.end());
}

std::string_view Tokenizer::find_special(std::string_view text) const {
  ScratchLoan loan(state_->scratch);
  text::RegexScratch& scratch = (*loan).regex;
  std::string_view first;
  const auto found = [&](std::int32_t id) {
    if (first.empty() && is_special(id)) first = state_->tokens[static_cast<std::size_t>(id)].spelling;
  };
  const auto piece = [&](std::string_view part) {
    const std::string normalized = state_->normalizer.run(part, scratch);
    state_->normalized_tokens.split(
        normalized, true, scratch, [](std::string_view) {}, found);
  };
  const auto raw_piece = [&](std::string_view part) {
    if (first.empty() && !state_->normalized_tokens.empty()) piece(part);
  };
  state_->raw_tokens.split(text, true, scratch, raw_piece, found);
  return first;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  if (state_->decoder.byte_level()) {
    std::string bytes;
    for (const std::int32_t id : ids) {
      if (!skip_special || !is_special(id)) bytes.append(token_bytes(id));
    }
    return text::take_characters(bytes, true);
  }
  StreamDecoder stream(*this, skip_special);
  std::string out;
  for (const std::int32_t id : ids) out += stream.push(id);
  return out + stream.finish();
}

std::int32_t Tokenizer::vocab_size() const {
  return static_cast<std::int32_t>(state_->tokens.size());
}
std::int64_t Tokenizer::num_merges() const {
  return static_cast<std::int64_t>(state_->spec.merges.size());
}

std::optional<std::int32_t> Tokenizer::token_id(std::string_view token) const {
  const auto at = state_->ids.find(token);
  return at == state_->ids.end() ? std::nullopt : std::optional(at->second);
}

bool Tokenizer::has_token(std::int32_t id) const {
  return id >= 0 && id < vocab_size() && state_->tokens[static_cast<std::size_t>(id)].present;
}

std::string Tokenizer::token(std::int32_t id) const {
  if (!has_token(id)) {
    fail(ErrorKind::usage, "{} is not the id of a token; ids go from 0 to {}", id, vocab_size() - 1);
  }
  return state_->tokens[static_cast<std::size_t>(id)].spelling;
}

std::shared_ptr<text::DecodeRun> Tokenizer::start_decoding() const {
  if (state_->decoder.byte_level()) return nullptr;
  return std::make_shared<text::DecodeRun>(state_->decoder.start());
}

std::string_view Tokenizer::token_bytes(std::int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return state_->tokens[static_cast<std::size_t>(id)].bytes;
}

bool Tokenizer::is_special(std::int32_t id) const {
  return id >= 0 && id < vocab_size() && state_->tokens[static_cast<std::size_t>(id)].special;
}

std::optional<std::int32_t> Tokenizer::bos_id() const {
  return state_->bos;
}
std::optional<std::int32_t> Tokenizer::eos_id() const {
  return state_->eos;
}
std::optional<std::int32_t> Tokenizer::pad_id() const {
  return state_->pad;
}
int Tokenizer::num_missing_bytes() const {
  return state_->missing_bytes;
}

std::string Tokenizer::fingerprint() const {
  const auto& state = *state_;
  Fingerprint print;
  print.add("byte-level bpe 1");
  for (const std::size_t size : {state.tokens.size(), state.spec.merges.size(), state.added.size()}) {
    print.add(static_cast<std::int64_t>(size));
  }
  for (const text::Token& token : state.tokens) {
    print.add(token.present);
    print.add(token.spelling);
  }
  for (const auto& [left, right] : state.spec.merges) print.add(left), print.add(right);
  for (const bool flag : {state.model.ignore_merges, state.model.fuse_unknown, state.normalizer.only_nfc()})
    print.add(flag);
  print.add(state.model.unknown_id.value_or(-1));
  print.add(state.pre_tokenizer.description());
  for (const text::AddedToken& token : state.added) {
    print.add(token.id);
    for (const bool flag : {token.single_word, token.lstrip, token.rstrip, token.normalized, token.special}) {
      print.add(flag);
    }
  }
  for (const auto* list : {&state.prefix, &state.suffix}) {
    print.add(static_cast<std::int64_t>(list->size()));
    for (const std::int32_t id : *list) print.add(id);
  }
  for (const auto& id : {state.bos, state.eos, state.pad}) print.add(id.value_or(-1));
  // What only other tokenizers than the first supported ones have comes last, so that theirs stay the same.
  if (!state.normalizer.empty() && !state.normalizer.only_nfc()) print.add(state.normalizer.description());
  if (!state.model.byte_level) print.add(state.model.byte_fallback ? "characters, bytes" : "characters");
  return print.hex();
}

void Tokenizer::save(FileSystem& files, const std::string& folder, std::int64_t model_max_length) const {
  files.make_directory(folder);
  for (const auto& [name, contents] : this->files(model_max_length)) {
    write_file_atomically(files, join_path(folder, name), contents);
  }
}

TokenizerFiles Tokenizer::files(std::int64_t model_max_length) const {
  return text::tokenizer_files(state_->spec, model_max_length);
}

StreamDecoder::StreamDecoder(Tokenizer tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special), decoding_(tokenizer_.start_decoding()) {}

std::string StreamDecoder::push(std::int32_t id) {
  const bool left_out = !tokenizer_.has_token(id) || (skip_special_ && tokenizer_.is_special(id));
  if (decoding_ != nullptr) return left_out ? std::string() : decoding_->push(tokenizer_.token(id));
  if (!left_out) pending_.append(tokenizer_.token_bytes(id));
  return text::take_characters(pending_, false);
}

std::string StreamDecoder::finish() {
  return decoding_ != nullptr ? decoding_->finish() : text::take_characters(pending_, true);
}

}  // namespace lode
