#include "text/post_processor.h"

#include "core/fail.h"
#include "text/json_fields.h"

namespace lode::text {
namespace {

std::int32_t token_id(const Json& id, FunctionRef<bool(std::int64_t)> is_token, std::string_view where,
                      const std::string& what) {
  if (!id.is_int() || !is_token(id.as_int())) {
    fail(ErrorKind::data, "{}: {}: {} is not the id of a token", what, where, id.dump());
  }
  return static_cast<std::int32_t>(id.as_int());
}

}  // namespace

PostProcessor::PostProcessor(const Json& config, FunctionRef<bool(std::int64_t)> is_token,
                             const std::string& what) {
  if (!config.is_null()) add(config, is_token, what);
}

void PostProcessor::add(const Json& config, FunctionRef<bool(std::int64_t)> is_token,
                        const std::string& what) {
  const std::string type = type_of(config, "post_processor", what);
  if (type == "Sequence") {
    for (const Json& part : array_field(config, "processors", "post_processor", what)) {
      add(part, is_token, what);
    }
  } else if (type == "TemplateProcessing") {
    add_template(config, is_token, what);
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    add_pair(config, "post_processor " + type, is_token, what);
  } else if (type != "ByteLevel") {
    fail(ErrorKind::data,
         "{}: post_processor {} is not supported (known: ByteLevel, TemplateProcessing, RobertaProcessing, "
         "BertProcessing, Sequence)",
         what, type);
  }
}

void PostProcessor::add_pair(const Json& config, const std::string& where,
                             FunctionRef<bool(std::int64_t)> is_token, const std::string& what) {
  const auto id_of = [&](const char* key) {
    const Json::Array& pair = array_field(config, key, where, what);
    if (pair.size() != 2) fail(ErrorKind::data, "{}: {}: {} must be [token, id]", what, where, key);
    return token_id(pair[1], is_token, where, what);
  };
  prefix.insert(prefix.begin(), id_of("cls"));
  suffix.push_back(id_of("sep"));
}

void PostProcessor::add_template(const Json& config, FunctionRef<bool(std::int64_t)> is_token,
                                 const std::string& what) {
  constexpr std::string_view where = "post_processor TemplateProcessing";
  std::vector<std::int32_t> before, after;
  int sequences = 0;
  for (const Json& piece : array_field(config, "single", where, what)) {
    if (const Json* sequence = piece.find("Sequence")) {
      if (string_field(*sequence, "id", where, what) != "A") {
        fail(ErrorKind::data, "{}: {}: a single template with another sequence than A is not supported", what,
             where);
      }
      sequences++;
      continue;
    }
    const std::string name = string_field(field(piece, "SpecialToken", where, what), "id", where, what);
    const Json& entry = field(field(config, "special_tokens", where, what), name, where, what);
    for (const Json& id : array_field(entry, "ids", where, what)) {
      const std::string place = format("{}: special_tokens \"{}\"", where, name);
      (sequences == 0 ? before : after).push_back(token_id(id, is_token, place, what));
    }
  }
  if (sequences != 1) fail(ErrorKind::data, "{}: {}: single must hold the sequence A once", what, where);
  prefix.insert(prefix.begin(), before.begin(), before.end());
  suffix.insert(suffix.end(), after.begin(), after.end());
}

}  // namespace lode::text
