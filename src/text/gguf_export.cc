// A Tokenizer as GGUF's lists.
#include <algorithm>

#include "core/fail.h"
#include "text/gguf_pre.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer_spec.h"
#include "text/tokenizer_state.h"

namespace lode {
namespace {

constexpr std::int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;
constexpr float kUnusedScore = -1e4f;

const Json& section(const text::TokenizerSpec& spec, std::string_view key) {
  static const Json null;
  const Json* value = spec.document.find(key);
  return value == nullptr ? null : *value;
}

std::string pre_name(const text::TokenizerState& state) {
  for (const bool exact : {true, false}) {  // prefer the name whose other settings agree, too
    for (const text::GgufPre& pre : text::gguf_pres()) {
      if (text::PreTokenizer(pre.pre_tokenizer(), "pre").description() != state.pre_tokenizer.description())
        continue;
      const bool agrees =
          pre.ignore_merges == state.model.ignore_merges && pre.nfc == state.normalizer.only_nfc();
      if (agrees || !exact) return std::string(pre.name);
    }
  }
  fail(ErrorKind::data,
       "the pre_tokenizer of this tokenizer.json has no name in GGUF; export safetensors instead ({})",
       section(state.spec, "pre_tokenizer").dump().substr(0, 200));
}

bool starts_words_with_space(const text::TokenizerState& state) {
  const std::string& steps = state.normalizer.description();
  const std::string spaces = text::Normalizer(Json::object({{"type", "Replace"},
                                                            {"pattern", Json::object({{"String", " "}})},
                                                            {"content", "\u2581"}}),
                                              "gguf")
                                 .description();
  const std::string prefix =
      text::Normalizer(Json::object({{"type", "Prepend"}, {"prepend", "\u2581"}}), "gguf").description();
  if (steps == spaces) return false;
  if (steps == prefix + spaces || steps == spaces + prefix) return true;
  const Json& pre = section(state.spec, "pre_tokenizer");
  if (const Json* type = pre.find("type"); steps.empty() && type != nullptr && *type == Json("Metaspace")) {
    const Json* scheme = pre.find("prepend_scheme");
    return scheme == nullptr || *scheme != Json("never");
  }
  fail(ErrorKind::data,
       "the normalizer of this tokenizer.json has no counterpart in GGUF; export safetensors instead ({})",
       section(state.spec, "normalizer").dump().substr(0, 200));
}

// What stands for an id without a token.
std::string filler(std::size_t id) {
  return format("[PAD{}]", id);
}

void add_tokens(const Tokenizer& tokenizer, const text::TokenizerState& state, GgufTokenizerData& data) {
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); id++) {
    const bool present = tokenizer.has_token(id);
    const std::string unused = filler(static_cast<std::size_t>(id));
    data.tokens.push_back(present ? tokenizer.token(id) : unused);
    std::int32_t type = data.tokens.back() == unused ? kUnused : kNormal;
    if (!state.model.byte_level && text::byte_of_token(data.tokens.back()) >= 0) type = kByte;
    data.token_types.push_back(type);
  }
  for (const text::AddedToken& token : state.added) {
    data.token_types[static_cast<std::size_t>(token.id)] = token.special ? kControl : kUserDefined;
  }
  if (!state.model.byte_level && state.model.unknown_id) {
    data.token_types[static_cast<std::size_t>(*state.model.unknown_id)] = kUnknown;
  }
}

// Readers merge by falling score. A token's score is minus the rank of the first merge that gives it; tokens
// whose merges interleave had one score, and get one.
void add_scores(const text::TokenizerState& state, GgufTokenizerData& data) {
  const auto& merges = state.spec.merges;
  std::vector<std::size_t> last(data.tokens.size());  // rank of a token's last merge
  const auto merged = [&](std::size_t rank) {
    return static_cast<std::size_t>(state.model.merges.find(merges[rank].first, merges[rank].second)->id);
  };
  for (std::size_t rank = 0; rank < merges.size(); rank++) last[merged(rank)] = rank;
  data.scores.assign(data.tokens.size(), -static_cast<float>(merges.size()));
  std::size_t begin = 0, end = 0;
  for (std::size_t rank = 0; rank < merges.size(); rank++) {
    const std::size_t id = merged(rank);
    if (rank > end) begin = rank;
    end = std::max(end, last[id]);
    data.scores[id] = -static_cast<float>(begin);
  }
}

}  // namespace

GgufTokenizerData gguf_tokenizer_data(const Tokenizer& tokenizer) {
  const text::TokenizerState& state = tokenizer.state();
  GgufTokenizerData data;
  add_tokens(tokenizer, state, data);
  if (state.model.byte_level) {
    if (!state.normalizer.empty() && !state.normalizer.only_nfc()) {
      fail(
          ErrorKind::data,
          "the normalizer of this tokenizer.json has no counterpart in GGUF; export safetensors instead ({})",
          section(state.spec, "normalizer").dump().substr(0, 200));
    }
    data.model = "gpt2";
    data.pre = pre_name(state);
    for (const auto& [left, right] : state.spec.merges) {
      data.merges.push_back(data.tokens[static_cast<std::size_t>(left)] + " " +
                            data.tokens[static_cast<std::size_t>(right)]);
    }
  } else {
    data.model = "llama";
    data.pre = "default";
    if (!state.model.byte_fallback) {
      fail(ErrorKind::data,
           "a tokenizer over characters without byte_fallback has no counterpart in GGUF; export safetensors "
           "instead");
    }
    data.add_space_prefix = starts_words_with_space(state);
    add_scores(state, data);
  }
  data.bos = tokenizer.bos_id();
  data.eos = tokenizer.eos_id();
  data.pad = tokenizer.pad_id();
  data.unk = state.model.unknown_id;
  const auto names = tokenizer.named_tokens();
  if (const auto turn = names.find("eot_token"); turn != names.end())
    data.eot = tokenizer.token_id(turn->second);
  if (!data.eot) {  // generation ends there, too
    for (const std::int32_t id : tokenizer.stop_ids()) {
      if (id != data.eos && !data.eot) data.eot = id;
    }
  }
  data.add_bos = data.bos && std::ranges::find(state.prefix, *data.bos) != state.prefix.end();
  data.add_eos = data.eos && std::ranges::find(state.suffix, *data.eos) != state.suffix.end();
  data.chat_templates = tokenizer.chat_templates();
  if (tokenizer_from_gguf(data, "gguf").fingerprint() != tokenizer.fingerprint()) {
    data.huggingface_json = tokenizer.files().front().second;
  }
  return data;
}

void pad_gguf_tokens(GgufTokenizerData& data, std::int64_t rows) {
  while (static_cast<std::int64_t>(data.tokens.size()) < rows) {
    data.tokens.push_back(filler(data.tokens.size()));
    data.token_types.push_back(kUnused);
    if (!data.scores.empty()) data.scores.push_back(kUnusedScore);
  }
}

void remove_gguf_padding(GgufTokenizerData& data) {
  while (!data.tokens.empty() && data.token_types.size() == data.tokens.size() &&
         data.token_types.back() == kUnused && data.tokens.back() == filler(data.tokens.size() - 1)) {
    if (data.scores.size() == data.tokens.size()) data.scores.pop_back();
    data.tokens.pop_back();
    data.token_types.pop_back();
  }
}

}  // namespace lode
