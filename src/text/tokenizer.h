// BPE tokenizers in Hugging Face's tokenizer.json form: load, encode, decode, extend, save. Byte level
// (GPT-2, Llama 3, Qwen) and sentencepiece style (Llama 2, Mistral, Gemma); text/gguf_tokenizer.h has GGUF's.
// Ids equal those of the `tokenizers` package. A component that is not supported is refused by name when
// loading.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/file.h"

namespace lode {

struct EncodeOptions {
  bool add_special_tokens = false;  // apply the file's template (for example a leading bos token)
  bool parse_special = true;        // false: text that spells a special token is ordinary text
};

// The tokens that tokenizer_config.json names. An empty name means: none.
struct NamedTokens {
  std::string bos, eos, pad;
};

// Name ("default", "tool_use", ...) and text; "default" first when there is one.
using ChatTemplates = std::vector<std::pair<std::string, std::string>>;

using TokenizerFiles = std::vector<std::pair<std::string, std::string>>;  // name, contents

namespace text {
class DecodeRun;
struct TokenizerState;
struct TokenizerSpec;
}  // namespace text

// Immutable and cheap to copy; every const member may be called from several threads at once.
class Tokenizer {
 public:
  // `path` is a folder with tokenizer.json, or that file. Read too when beside it: tokenizer_config.json,
  // special_tokens_map.json, chat_template.jinja, additional_chat_templates/, generation_config.json (eos).
  // Throws Error(data) naming file and key for anything missing, damaged, contradictory or not supported.
  static Tokenizer load(FileSystem& files, const std::string& path);
  // From parts made by the trainer or a test; `what` names the source in error messages.
  static Tokenizer from_spec(text::TokenizerSpec spec, const std::string& what);

  // Bytes that are not UTF-8 count as U+FFFD, one per maximal invalid sequence. Time is linear in the text.
  std::vector<std::int32_t> encode(std::string_view text, EncodeOptions options = {}) const;
  // Appends to `ids`, which keeps its storage: for loops over many documents.
  void encode_to(std::string_view text, std::vector<std::int32_t>& ids, EncodeOptions options = {}) const;

  // Ids without a token add nothing; incomplete UTF-8 becomes U+FFFD. `skip_special` leaves special tokens
  // out.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = false) const;

  std::int32_t vocab_size() const;  // largest id + 1
  std::int64_t num_merges() const;
  std::optional<std::int32_t> token_id(std::string_view token) const;  // as spelled in tokenizer.json
  std::string token(std::int32_t id) const;  // as spelled in tokenizer.json; Error(usage) when there is none
  std::string_view token_bytes(std::int32_t id) const;  // the bytes it stands for; empty for an unknown id
  bool has_token(std::int32_t id) const;
  bool is_special(std::int32_t id) const;
  // The first special token that encode() would take for one in this text, as spelled; empty: none.
  std::string_view find_special(std::string_view text) const;

  std::optional<std::int32_t> bos_id() const;
  std::optional<std::int32_t> eos_id() const;
  std::optional<std::int32_t> pad_id() const;

  // Every token that tokenizer_config.json or special_tokens_map.json names: "bos_token" -> "<s>" and so on.
  std::map<std::string, std::string> named_tokens() const;
  std::vector<std::string> additional_special_tokens() const;  // their unnamed list
  // Where generation ends: eos, "eot_token", and generation_config.json's eos_token_id. Ascending.
  std::vector<std::int32_t> stop_ids() const;

  const ChatTemplates& chat_templates() const;
  std::optional<std::string> chat_template(std::string_view name = "default") const;
  // Replaces "default"; generation ends at `stop_ids` too.
  Tokenizer with_chat_template(std::string text, const std::vector<std::int32_t>& stop_ids = {}) const;

  // Copies with more added tokens, with the next free ids; what is there already keeps its id (and becomes
  // special by add_special_tokens). Throws Error(usage) for an empty token.
  Tokenizer add_tokens(const std::vector<std::string>& tokens) const;
  Tokenizer add_special_tokens(const std::vector<std::string>& tokens) const;

  // How many bytes that UTF-8 text can contain have no token; such bytes become the unknown token or are
  // dropped, as in the reference. 0 for all usual vocabularies; worth a warning otherwise.
  int num_missing_bytes() const;

  // 16 hex digits over everything that affects ids; independent of key order and white space in the file.
  std::string fingerprint() const;

  // Writes tokenizer.json, tokenizer_config.json and, where the tokenizer has them, special_tokens_map.json
  // and chat templates, each atomically, into an existing or new folder. Unknown keys are kept.
  // model_max_length > 0 is written too.
  void save(FileSystem& files, const std::string& folder, std::int64_t model_max_length = 0) const;
  // The same files as names and contents.
  TokenizerFiles files(std::int64_t model_max_length = 0) const;

  const text::TokenizerState& state() const;  // its parts (text/tokenizer_state.h); lives as long as a copy

 private:
  friend class StreamDecoder;
  std::shared_ptr<text::DecodeRun> start_decoding() const;  // null for byte level
  Tokenizer extended(const std::vector<std::string>& tokens, bool special) const;
  explicit Tokenizer(std::shared_ptr<const text::TokenizerState> state);
  std::shared_ptr<const text::TokenizerState> state_;
};

// Decodes a growing sequence: each call returns only complete characters; all parts together equal decode().
// A copy shares what is pending.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, bool skip_special = false);
  std::string push(std::int32_t id);
  std::string finish();  // what is left, incomplete characters as U+FFFD

 private:
  Tokenizer tokenizer_;
  bool skip_special_;
  std::string pending_;                        // byte level
  std::shared_ptr<text::DecodeRun> decoding_;  // everything else
};

}  // namespace lode
