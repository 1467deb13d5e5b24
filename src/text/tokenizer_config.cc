// What lies beside tokenizer.json: named tokens, chat templates, the ids that end generation.
#include <algorithm>

#include "core/fail.h"
#include "text/json_fields.h"
#include "text/tokenizer_spec.h"

namespace lode::text {
namespace {

constexpr std::string_view kTemplateFile = "chat_template.jinja";
constexpr std::string_view kTemplateFolder = "additional_chat_templates";

Json read_object(FileSystem& files, const std::string& path) {
  if (!files.exists(path)) return {};
  Json value = parse_json(files.map(path)->text(), path);
  if (!value.is_object()) fail(ErrorKind::data, "{}: must be an object, not {}", path, value.type_name());
  return value;
}

ChatTemplates template_files(FileSystem& files, const std::string& folder) {
  ChatTemplates found;
  const std::string main = join_path(folder, kTemplateFile);
  if (files.exists(main)) found.emplace_back("default", files.read(main));
  const std::string more = join_path(folder, kTemplateFolder);
  if (!files.is_directory(more)) return found;
  constexpr std::string_view extension = ".jinja";
  for (const std::string& name : files.list(more)) {
    if (!name.ends_with(extension)) continue;
    found.emplace_back(name.substr(0, name.size() - extension.size()), files.read(join_path(more, name)));
  }
  return found;
}

ChatTemplates config_templates(const Json& config, const std::string& what) {
  const Json* value = config.find("chat_template");
  if (value == nullptr || value->is_null()) return {};
  if (value->is_string()) return {{"default", value->as_string()}};
  ChatTemplates found;
  if (!value->is_array()) {
    fail(ErrorKind::data, "{}: chat_template must be a string or a list of name and template, not {}", what,
         value->type_name());
  }
  for (const Json& entry : value->as_array()) {
    found.emplace_back(string_field(entry, "name", "chat_template", what),
                       string_field(entry, "template", "chat_template", what));
  }
  std::stable_partition(found.begin(), found.end(),
                        [](const auto& entry) { return entry.first == "default"; });
  return found;
}

void read_stop_ids(FileSystem& files, const std::string& folder, TokenizerSpec& spec) {
  const std::string path = join_path(folder, "generation_config.json");
  const Json config = read_object(files, path);
  const Json* value = config.find("eos_token_id");
  if (value == nullptr || value->is_null()) return;
  const auto add = [&](const Json& id) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() > kMaxTokenId) {
      fail(ErrorKind::data, "{}: eos_token_id must be an id or a list of ids, not {}", path, value->dump());
    }
    spec.stop_ids.push_back(static_cast<std::int32_t>(id.as_int()));
  };
  if (!value->is_array()) return add(*value);
  for (const Json& id : value->as_array()) add(id);
}

// A template file hides the list in tokenizer_config.json from readers, so several stay in the list.
bool only_default(const TokenizerSpec& spec) {
  return spec.templates.size() == 1 && spec.templates[0].first == "default";
}

Json config_json(const TokenizerSpec& spec, std::int64_t model_max_length) {
  Json config = spec.config.is_object() ? spec.config : Json::object();
  if (config.find("tokenizer_class") == nullptr) config["tokenizer_class"] = "PreTrainedTokenizerFast";
  if (config.find("clean_up_tokenization_spaces") == nullptr) config["clean_up_tokenization_spaces"] = false;
  if (model_max_length > 0) config["model_max_length"] = model_max_length;
  const std::pair<const char*, const std::string&> names[] = {
      {"bos_token", spec.named.bos}, {"eos_token", spec.named.eos}, {"pad_token", spec.named.pad}};
  for (const auto& [key, token] : names) {
    if (!token.empty() && named_token(config, key, "tokenizer_config.json") != token) config[key] = token;
  }
  if (spec.templates.empty() || only_default(spec)) return config;
  Json list = Json::array();
  for (const auto& [name, text] : spec.templates) {
    list.push_back(Json::object({{"name", name}, {"template", text}}));
  }
  config["chat_template"] = std::move(list);
  return config;
}

}  // namespace

std::string named_token(const Json& config, std::string_view key, const std::string& what) {
  const Json* value = config.find(key);
  if (value == nullptr || value->is_null()) return {};
  if (value->is_string()) return value->as_string();
  return string_field(*value, "content", key, what);
}

void read_tokenizer_config(FileSystem& files, const std::string& folder, TokenizerSpec& spec) {
  const std::string path = join_path(folder, "tokenizer_config.json");
  const std::string map_path = join_path(folder, "special_tokens_map.json");
  spec.config = read_object(files, path);
  spec.special_map = read_object(files, map_path);
  const auto name = [&](const char* key) {
    const std::string token = named_token(spec.config, key, path);
    return token.empty() ? named_token(spec.special_map, key, map_path) : token;
  };
  spec.named = {name("bos_token"), name("eos_token"), name("pad_token")};
  spec.templates = template_files(files, folder);
  if (spec.templates.empty()) spec.templates = config_templates(spec.config, path);
  if (spec.templates.empty()) {
    const std::string old = join_path(folder, "chat_template.json");
    spec.templates = config_templates(read_object(files, old), old);
  }
  read_stop_ids(files, folder, spec);
}

void add_config_files(const TokenizerSpec& spec, std::int64_t model_max_length, TokenizerFiles& files) {
  files.emplace_back("tokenizer_config.json", config_json(spec, model_max_length).dump(2) + "\n");
  if (spec.special_map.is_object()) {
    files.emplace_back("special_tokens_map.json", spec.special_map.dump(2) + "\n");
  }
  if (only_default(spec)) files.emplace_back(kTemplateFile, spec.templates[0].second);
}

}  // namespace lode::text
