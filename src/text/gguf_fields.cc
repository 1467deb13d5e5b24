// GGUF's metadata keys of tokenizers.
#include <utility>

#include "core/fail.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer_spec.h"

namespace lode {
namespace {

constexpr std::string_view kTemplate = "tokenizer.chat_template";

std::string key(std::string_view name) {
  return "tokenizer.ggml." + std::string(name);
}

std::optional<std::int32_t> read_id(const GgufFile& file, std::string_view name) {
  const auto id = file.integer(key(name));
  if (!id) return std::nullopt;
  if (*id < 0 || *id > text::kMaxTokenId) {
    fail(ErrorKind::data, "{}: {}: {} is not the id of a token", file.path(), key(name), *id);
  }
  return static_cast<std::int32_t>(*id);
}

// Members that are optional ids or flags, with their keys.
template <class Data, class Ids, class Flags>
void for_each_option(Data& data, const Ids& ids, const Flags& flags) {
  ids("bos_token_id", data.bos), ids("eos_token_id", data.eos), ids("unknown_token_id", data.unk);
  ids("padding_token_id", data.pad), ids("eot_token_id", data.eot);
  flags("add_bos_token", data.add_bos), flags("add_eos_token", data.add_eos);
  flags("add_space_prefix", data.add_space_prefix);
}

}  // namespace

GgufTokenizerData read_gguf_tokenizer(const GgufFile& file) {
  GgufTokenizerData data;
  const auto model = file.text(key("model"));
  if (!model)
    fail(ErrorKind::data, "{}: there is no tokenizer in it ({} is missing)", file.path(), key("model"));
  data.model = *model;
  data.pre = file.text(key("pre")).value_or("");
  for (const std::string_view token : file.texts(key("tokens"))) data.tokens.emplace_back(token);
  for (const double score : file.numbers(key("scores"))) data.scores.push_back(static_cast<float>(score));
  for (const std::int64_t type : file.integers(key("token_type"))) {
    data.token_types.push_back(static_cast<std::int32_t>(type));
  }
  for (const std::string_view merge : file.texts(key("merges"))) data.merges.emplace_back(merge);
  for_each_option(
      data, [&](const char* name, auto& id) { id = read_id(file, name); },
      [&](const char* name, auto& flag) { flag = file.boolean(key(name)); });
  data.huggingface_json = file.text("tokenizer.huggingface.json").value_or("");
  if (const auto text = file.text(kTemplate)) data.chat_templates.emplace_back("default", *text);
  for (const std::string_view name : file.texts("tokenizer.chat_templates")) {
    if (name == "default") continue;
    const auto text = file.text(std::string(kTemplate) + "." + std::string(name));
    if (text) data.chat_templates.emplace_back(name, *text);
  }
  return data;
}

void add_gguf_tokenizer(const GgufTokenizerData& data, GgufFields& fields) {
  fields.emplace_back(key("model"), data.model);
  if (!data.pre.empty()) fields.emplace_back(key("pre"), data.pre);
  fields.emplace_back(key("tokens"), data.tokens);
  if (!data.scores.empty()) fields.emplace_back(key("scores"), data.scores);
  if (!data.token_types.empty()) fields.emplace_back(key("token_type"), data.token_types);
  if (!data.merges.empty()) fields.emplace_back(key("merges"), data.merges);
  for_each_option(
      data,
      [&](const char* name, const auto& id) {
        if (id) fields.emplace_back(key(name), static_cast<std::uint32_t>(*id));
      },
      [&](const char* name, const auto& flag) {
        if (flag) fields.emplace_back(key(name), *flag);
      });
  std::vector<std::string> names;
  for (const auto& [name, text] : data.chat_templates) {
    const bool main = name == "default";
    fields.emplace_back(main ? std::string(kTemplate) : std::string(kTemplate) + "." + name, text);
    if (!main) names.push_back(name);
  }
  if (!names.empty()) fields.emplace_back("tokenizer.chat_templates", std::move(names));
  if (!data.huggingface_json.empty())
    fields.emplace_back("tokenizer.huggingface.json", data.huggingface_json);
}

}  // namespace lode
