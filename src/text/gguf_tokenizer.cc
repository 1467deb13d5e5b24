// A tokenizer.json document from GGUF's lists.
#include "text/gguf_tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "core/fail.h"
#include "text/gguf_pre.h"
#include "text/tokenizer_spec.h"
#include "text/unicode.h"

namespace lode {
namespace {

constexpr std::int32_t kUnknown = 2, kControl = 3, kUserDefined = 4;
constexpr const char* kSpace = "\u2581";

using TokenIds = std::unordered_map<std::string_view, std::int32_t>;

Json typed(const char* type) {
  return Json::object({{"type", type}});
}

Json replace(const char* from, const char* to) {
  return Json::object({{"type", "Replace"}, {"pattern", Json::object({{"String", from}})}, {"content", to}});
}

Json byte_level() {
  return Json::object(
      {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}});
}

class Builder {
 public:
  Builder(const GgufTokenizerData& data, const std::string& what) : data_(data), what_(what) {}

  Tokenizer build() {
    check();
    if (!data_.huggingface_json.empty()) {
      spec_ = text::parse_tokenizer(data_.huggingface_json, what_ + ": tokenizer.huggingface.json");
    } else {
      make_document();
    }
    make_config();
    return Tokenizer::from_spec(std::move(spec_), what_);
  }

 private:
  [[noreturn]] void refuse(const std::string& key, const std::string& reason) const {
    fail(ErrorKind::data, "{}: tokenizer.ggml.{}: {}", what_, key, reason);
  }

  void check() const {
    if (!data_.huggingface_json.empty()) return;
    if (data_.model != "gpt2" && data_.model != "llama") {
      refuse("model", format("\"{}\" is not supported (known: gpt2, llama)", data_.model));
    }
    if (data_.tokens.empty()) refuse("tokens", "there are none");
    if (static_cast<std::int64_t>(data_.tokens.size()) > text::kMaxTokenId)
      refuse("tokens", "there are too many");
    for (const auto& [key, size] :
         {std::pair{"token_type", data_.token_types.size()}, {"scores", data_.scores.size()}}) {
      if (size != 0 && size != data_.tokens.size()) {
        refuse(key, format("has {} entries for {} tokens", size, data_.tokens.size()));
      }
    }
  }

  std::int32_t type_of(std::size_t id) const { return data_.token_types.empty() ? 1 : data_.token_types[id]; }

  const std::string& token(std::int32_t id, const char* key) const {
    if (id < 0 || static_cast<std::size_t>(id) >= data_.tokens.size()) {
      refuse(key, format("{} is not an id; there are {} tokens", id, data_.tokens.size()));
    }
    return data_.tokens[static_cast<std::size_t>(id)];
  }

  void make_document() {
    for (std::size_t i = 0; i < data_.tokens.size(); i++) {
      const auto id = static_cast<std::int32_t>(i);
      const std::string& token = data_.tokens[i];
      if (token.empty() || text::valid_utf8_prefix(token) != token.size()) {
        refuse("tokens", format("[{}] is {}", i, token.empty() ? "empty" : "not UTF-8"));
      }
      spec_.vocab.emplace_back(token, id);
      if (!ids_.emplace(token, id).second) refuse("tokens", format("\"{}\" appears twice", token));
      const std::int32_t type = type_of(i);
      if (type != kUnknown && type != kControl && type != kUserDefined) continue;
      Json entry = text::special_token_json(id, token);
      entry["special"] = type != kUserDefined;
      added_.push_back(std::move(entry));
    }
    model_ = Json::object({{"type", "BPE"},
                           {"dropout", nullptr},
                           {"unk_token", nullptr},
                           {"continuing_subword_prefix", nullptr},
                           {"end_of_word_suffix", nullptr},
                           {"fuse_unk", false},
                           {"byte_fallback", false},
                           {"ignore_merges", false},
                           {"vocab", Json::object()},
                           {"merges", Json::array()}});
    if (data_.model == "gpt2") {
      make_byte_level();
    } else {
      make_sentencepiece();
    }
    spec_.document = Json::object({{"version", "1.0"},
                                   {"truncation", nullptr},
                                   {"padding", nullptr},
                                   {"added_tokens", std::move(added_)},
                                   {"normalizer", std::move(normalizer_)},
                                   {"pre_tokenizer", std::move(pre_tokenizer_)},
                                   {"post_processor", post_processor()},
                                   {"decoder", std::move(decoder_)},
                                   {"model", std::move(model_)}});
  }

  void make_byte_level() {
    const text::GgufPre* pre = text::find_gguf_pre(data_.pre);
    if (pre == nullptr) {
      std::string names;
      for (const std::string_view name : gguf_pre_names())
        names.append(names.empty() ? "" : ", ").append(name);
      refuse("pre", format("\"{}\" is not known (known: {})", data_.pre, names));
    }
    pre_tokenizer_ = pre->pre_tokenizer();
    if (pre->nfc) normalizer_ = typed("NFC");
    decoder_ = byte_level();
    model_["ignore_merges"] = pre->ignore_merges;
    add_bos_ = data_.add_bos.value_or(pre->add_bos);
    for (std::size_t i = 0; i < data_.merges.size(); i++) {
      const std::string_view merge = data_.merges[i];
      const std::size_t space = merge.find(' ', 1);
      const auto left = space == merge.npos ? ids_.end() : ids_.find(merge.substr(0, space));
      const auto right = space == merge.npos ? ids_.end() : ids_.find(merge.substr(space + 1));
      if (left == ids_.end() || right == ids_.end()) {
        refuse("merges", format("[{}] must be two tokens with a space between them, not \"{}\"", i, merge));
      }
      spec_.merges.emplace_back(left->second, right->second);
    }
  }

  void make_sentencepiece() {
    const bool prefix = data_.add_space_prefix.value_or(true);
    add_bos_ = data_.add_bos.value_or(true);
    Json change = replace(" ", kSpace);
    normalizer_ = change;
    if (prefix) {
      Json prepend = Json::object({{"type", "Prepend"}, {"prepend", kSpace}});
      normalizer_ = Json::object(
          {{"type", "Sequence"}, {"normalizers", Json(Json::Array{std::move(prepend), std::move(change)})}});
    }
    Json::Array steps = {replace(kSpace, " "), typed("ByteFallback"), typed("Fuse")};
    if (prefix) {
      steps.push_back(Json::object({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}));
    }
    decoder_ = Json::object({{"type", "Sequence"}, {"decoders", Json(std::move(steps))}});
    model_["byte_fallback"] = true;
    model_["fuse_unk"] = true;
    if (data_.unk) model_["unk_token"] = token(*data_.unk, "unknown_token_id");
    if (data_.scores.empty()) refuse("scores", "are missing; a model of type llama needs them");
    add_scored_merges();
  }

  // Every way to make a token of two: by falling score, then longer left and right part first, then smaller
  // ids; the order that converters write.
  void add_scored_merges() {
    struct Merge {
      float score;
      std::uint32_t left_length, right_length;
      std::int32_t left, right;
    };
    std::vector<Merge> merges;
    for (std::size_t i = 0; i < data_.tokens.size(); i++) {
      const std::string_view token = data_.tokens[i];
      const std::int32_t type = type_of(i);
      if (type == kUnknown || type == kControl || token.size() > 4096) continue;
      const std::size_t first = merges.size();
      std::uint32_t length = 0, done = 0;
      for (std::size_t at = 0; at < token.size(); length++) text::next_code_point(token, at);
      for (std::size_t at = 0; at < token.size();) {
        text::next_code_point(token, at);
        done++;
        const auto left = ids_.find(token.substr(0, at));
        const auto right = at < token.size() ? ids_.find(token.substr(at)) : ids_.end();
        if (left == ids_.end() || right == ids_.end()) continue;
        merges.push_back({data_.scores[i], done, length - done, left->second, right->second});
      }
      std::sort(merges.begin() + static_cast<std::ptrdiff_t>(first), merges.end(),
                [](const Merge& a, const Merge& b) {
                  return std::pair(a.left, a.right) < std::pair(b.left, b.right);
                });
    }
    std::ranges::stable_sort(merges, [](const Merge& a, const Merge& b) {
      if (a.score != b.score) return a.score > b.score;
      return std::pair(a.left_length, a.right_length) > std::pair(b.left_length, b.right_length);
    });
    for (const Merge& merge : merges) spec_.merges.emplace_back(merge.left, merge.right);
  }

  Json post_processor() const {
    const bool add_eos = data_.add_eos.value_or(false) && data_.eos;
    const bool add_bos = add_bos_ && data_.bos;
    if (!add_bos && !add_eos) return data_.model == "gpt2" ? byte_level() : Json();
    Json specials = Json::object(), single = Json::array(), pair = Json::array();
    const auto special = [&](std::int32_t id, const char* key, int type, Json& list) {
      const std::string& name = token(id, key);
      list.push_back(Json::object({{"SpecialToken", Json::object({{"id", name}, {"type_id", type}})}}));
      specials[name] = Json::object({{"id", name},
                                     {"ids", Json(Json::Array{Json(static_cast<std::int64_t>(id))})},
                                     {"tokens", Json(Json::Array{Json(name)})}});
    };
    const auto part = [&](const char* id, int type, Json& list) {
      if (add_bos) special(*data_.bos, "bos_token_id", type, list);
      list.push_back(Json::object({{"Sequence", Json::object({{"id", id}, {"type_id", type}})}}));
      if (add_eos) special(*data_.eos, "eos_token_id", type, list);
    };
    part("A", 0, single);
    part("A", 0, pair);
    part("B", 1, pair);
    return Json::object({{"type", "TemplateProcessing"},
                         {"single", std::move(single)},
                         {"pair", std::move(pair)},
                         {"special_tokens", std::move(specials)}});
  }

  void make_config() {
    spec_.config = Json::object();
    const auto name = [&](const std::optional<std::int32_t>& id, const char* key, const char* gguf_key) {
      if (!id) return std::string();
      const std::string content = token(*id, gguf_key);
      spec_.config[key] = content;
      return content;
    };
    spec_.named.bos = name(data_.bos, "bos_token", "bos_token_id");
    spec_.named.eos = name(data_.eos, "eos_token", "eos_token_id");
    name(data_.unk, "unk_token", "unknown_token_id");
    spec_.named.pad = name(data_.pad, "pad_token", "padding_token_id");
    name(data_.eot, "eot_token", "eot_token_id");
    spec_.templates = data_.chat_templates;
  }

  const GgufTokenizerData& data_;
  const std::string& what_;
  text::TokenizerSpec spec_;
  TokenIds ids_;
  Json model_, normalizer_, pre_tokenizer_, decoder_, added_ = Json::array();
  bool add_bos_ = false;
};

}  // namespace

Tokenizer tokenizer_from_gguf(const GgufTokenizerData& data, const std::string& what) {
  return Builder(data, what).build();
}

Tokenizer tokenizer_from_gguf(const GgufFile& file) {
  GgufTokenizerData data = read_gguf_tokenizer(file);
  remove_gguf_padding(data);
  return tokenizer_from_gguf(data, file.path());
}

std::vector<std::string_view> gguf_pre_names() {
  std::vector<std::string_view> names;
  for (const text::GgufPre& pre : text::gguf_pres()) names.push_back(pre.name);
  return names;
}

}  // namespace lode
