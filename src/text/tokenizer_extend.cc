// Named tokens, chat templates and added tokens of a Tokenizer.
#include <algorithm>
#include <set>

#include "core/fail.h"
#include "text/tokenizer.h"
#include "text/tokenizer_spec.h"
#include "text/tokenizer_state.h"

namespace lode {
namespace {

std::string content_of(const Json& token) {
  if (token.is_string()) return token.as_string();
  const Json* content = token.find("content");
  return content != nullptr && content->is_string() ? content->as_string() : std::string();
}

bool names_a_token(std::string_view key) {
  return key.ends_with("_token");
}

}  // namespace

const text::TokenizerState& Tokenizer::state() const {
  return *state_;
}

std::map<std::string, std::string> Tokenizer::named_tokens() const {
  const text::TokenizerSpec& spec = state_->spec;
  std::map<std::string, std::string> names;
  const auto add_all = [&](const Json& object) {
    if (!object.is_object()) return;
    for (const auto& [key, value] : object.as_object()) {
      const std::string content = content_of(value);
      if (names_a_token(key) && !content.empty()) names.emplace(key, content);
    }
  };
  const std::pair<const char*, const std::string&> known[] = {
      {"bos_token", spec.named.bos}, {"eos_token", spec.named.eos}, {"pad_token", spec.named.pad}};
  for (const auto& [key, token] : known) {
    if (!token.empty()) names.emplace(key, token);
  }
  for (const Json* source : {&spec.config, &spec.special_map}) {
    add_all(*source);
    if (const Json* extra = source->find("extra_special_tokens")) add_all(*extra);
  }
  return names;
}

std::vector<std::string> Tokenizer::additional_special_tokens() const {
  std::vector<std::string> tokens;
  for (const Json* source : {&state_->spec.config, &state_->spec.special_map}) {
    for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
      const Json* list = source->find(key);
      if (list == nullptr || !list->is_array()) continue;
      for (const Json& token : list->as_array()) {
        const std::string content = content_of(token);
        if (!content.empty() && std::ranges::find(tokens, content) == tokens.end()) tokens.push_back(content);
      }
    }
  }
  return tokens;
}

std::vector<std::int32_t> Tokenizer::stop_ids() const {
  std::set<std::int32_t> ids;
  if (state_->eos) ids.insert(*state_->eos);
  const auto names = named_tokens();
  if (const auto turn = names.find("eot_token"); turn != names.end()) {
    if (const auto id = token_id(turn->second)) ids.insert(*id);
  }
  for (const std::int32_t id : state_->spec.stop_ids) {
    if (has_token(id)) ids.insert(id);
  }
  return {ids.begin(), ids.end()};
}

const ChatTemplates& Tokenizer::chat_templates() const {
  return state_->spec.templates;
}

std::optional<std::string> Tokenizer::chat_template(std::string_view name) const {
  for (const auto& [known, text] : state_->spec.templates) {
    if (known == name) return text;
  }
  return std::nullopt;
}

Tokenizer Tokenizer::with_chat_template(std::string text, const std::vector<std::int32_t>& stop_ids) const {
  text::TokenizerSpec spec = state_->spec;
  std::erase_if(spec.templates, [](const auto& entry) { return entry.first == "default"; });
  if (spec.config.is_object()) {  // older readers look there only, so it must not say something else
    std::erase_if(spec.config.as_object(),
                  [](const auto& member) { return member.first == "chat_template"; });
  }
  spec.templates.emplace(spec.templates.begin(), "default", std::move(text));
  spec.stop_ids.insert(spec.stop_ids.end(), stop_ids.begin(), stop_ids.end());
  return from_spec(std::move(spec), "tokenizer");
}

Tokenizer Tokenizer::extended(const std::vector<std::string>& tokens, bool special) const {
  text::TokenizerSpec spec = state_->spec;
  Json& list = spec.document["added_tokens"];
  if (!list.is_array()) list = Json::array();
  auto next = static_cast<std::int32_t>(spec.vocab.size());
  for (const text::AddedToken& token : state_->added) next = std::max(next, token.id + 1);
  for (const std::string& token : tokens) {
    if (token.empty()) fail(ErrorKind::usage, "a token to add is empty");
    const auto same = [&](const Json& entry) { return entry.at("content").as_string() == token; };
    const auto there = std::ranges::find_if(list.as_array(), same);
    if (there != list.as_array().end()) {
      if (special) (*there)["special"] = true;
      continue;
    }
    const std::optional<std::int32_t> known = token_id(token);
    if (known && !special) continue;
    Json entry = text::special_token_json(known.value_or(next), token);
    entry["special"] = special;
    entry["normalized"] = !special;
    list.push_back(std::move(entry));
    if (!known) next++;
  }
  return from_spec(std::move(spec), "tokenizer with added tokens");
}

Tokenizer Tokenizer::add_tokens(const std::vector<std::string>& tokens) const {
  return extended(tokens, false);
}

Tokenizer Tokenizer::add_special_tokens(const std::vector<std::string>& tokens) const {
  return extended(tokens, true);
}

}  // namespace lode
