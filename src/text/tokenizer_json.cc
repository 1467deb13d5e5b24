// Reading and writing tokenizer.json.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/fail.h"
#include "text/bpe_model.h"
#include "text/json_fields.h"
#include "text/tokenizer_spec.h"

namespace lode::text {
namespace {

void require_bpe(const Json& model, const std::string& what) {
  const Json* type = model.find("type");
  if (type != nullptr && !type->is_null()) {
    const std::string name = type_of(model, "model", what);
    if (name != "BPE") fail(ErrorKind::data, "{}: model {} is not supported (known: BPE)", what, name);
  } else if (model.find("merges") == nullptr) {
    fail(ErrorKind::data, "{}: a model without \"merges\" is not supported (known: BPE)", what);
  }
}

void take_vocab(Json& model, TokenizerSpec& spec, const std::string& what) {
  if (!field(model, "vocab", "model", what).is_object()) {
    fail(ErrorKind::data, "{}: model.vocab must be an object of token and id", what);
  }
  const Json vocab = std::exchange(model["vocab"], Json::object());
  spec.vocab.reserve(vocab.size());
  for (const auto& [token, id] : vocab.as_object()) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() > kMaxTokenId) {
      fail(ErrorKind::data, "{}: model.vocab: the id of \"{}\" must be an integer from 0 to {}, not {}", what,
           token, kMaxTokenId, id.dump());
    }
    spec.vocab.emplace_back(token, static_cast<std::int32_t>(id.as_int()));
  }
}

// Both spellings: ["a", "b"] and "a b".
std::pair<std::string_view, std::string_view> merge_parts(const Json& merge, std::size_t index,
                                                          const std::string& what) {
  if (merge.is_array() && merge.size() == 2 && merge.as_array()[0].is_string() &&
      merge.as_array()[1].is_string()) {
    return {merge.as_array()[0].as_string(), merge.as_array()[1].as_string()};
  }
  if (merge.is_string()) {
    const std::string_view text = merge.as_string();
    const std::size_t space = text.find(' ');
    if (space != text.npos && space > 0 && space + 1 < text.size() &&
        text.find(' ', space + 1) == text.npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  }
  fail(ErrorKind::data, "{}: model.merges[{}] must be two tokens, [\"a\", \"b\"] or \"a b\", not {}", what,
       index, merge.dump().substr(0, 80));
}

void take_merges(Json& model, TokenizerSpec& spec, const std::string& what) {
  const Json merges(array_field(model, "merges", "model", what));
  model["merges"] = Json::array();
  std::unordered_map<std::string_view, std::int32_t> ids;
  ids.reserve(spec.vocab.size());
  for (const auto& [token, id] : spec.vocab) ids.emplace(token, id);
  spec.merges.reserve(merges.size());
  for (std::size_t i = 0; i < merges.size(); i++) {
    const auto [left, right] = merge_parts(merges.as_array()[i], i, what);
    for (const std::string_view part : {left, right}) {
      if (!ids.contains(part)) {
        fail(ErrorKind::data, "{}: model.merges[{}]: \"{}\" is not in model.vocab", what, i, part);
      }
    }
    spec.merges.emplace_back(ids[left], ids[right]);
  }
}

Json vocab_json(const TokenizerSpec& spec) {
  Json::Object members;
  members.reserve(spec.vocab.size());
  for (const auto& [token, id] : spec.vocab) members.emplace_back(token, Json(static_cast<std::int64_t>(id)));
  std::ranges::sort(members, {}, [](const Json::Member& member) { return member.second.as_int(); });
  Json object = Json::object();
  object.as_object() = std::move(members);
  return object;
}

Json merges_json(const TokenizerSpec& spec) {
  std::unordered_map<std::int32_t, const std::string*> tokens;
  tokens.reserve(spec.vocab.size());
  for (const auto& [token, id] : spec.vocab) tokens.emplace(id, &token);
  Json::Array merges;
  merges.reserve(spec.merges.size());
  for (const auto& [left, right] : spec.merges) {
    merges.emplace_back(Json::Array{Json(*tokens.at(left)), Json(*tokens.at(right))});
  }
  return Json(std::move(merges));
}

}  // namespace

TokenizerSpec parse_tokenizer(std::string_view json, const std::string& path) {
  TokenizerSpec spec;
  spec.document = parse_json(json, path);
  field(spec.document, "model", "the file", path);
  Json& model = spec.document["model"];
  if (!model.is_object())
    fail(ErrorKind::data, "{}: \"model\" must be an object, not {}", path, model.type_name());
  require_bpe(model, path);
  take_vocab(model, spec, path);
  take_merges(model, spec, path);

  return spec;
}

TokenizerSpec read_tokenizer(FileSystem& files, const std::string& path) {
  TokenizerSpec spec = parse_tokenizer(files.map(path)->text(), path);
  read_tokenizer_config(files, parent_path(path), spec);
  return spec;
}

TokenizerFiles tokenizer_files(const TokenizerSpec& spec, std::int64_t model_max_length) {
  Json document = spec.document;
  document["model"]["vocab"] = vocab_json(spec);
  document["model"]["merges"] = merges_json(spec);
  TokenizerFiles files = {{"tokenizer.json", document.dump(2)}};
  add_config_files(spec, model_max_length, files);
  return files;
}

Json special_token_json(std::int32_t id, const std::string& content) {
  return Json::object({{"id", static_cast<std::int64_t>(id)},
                       {"content", content},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
}

}  // namespace lode::text
