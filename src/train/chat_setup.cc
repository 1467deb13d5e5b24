#include "train/chat_setup.h"

#include <algorithm>

#include "core/fail.h"
#include "text/builtin_templates.h"

namespace lode {
namespace {

Json message(std::string_view role, std::string_view content) {
  return Json::object({{"role", role}, {"content", content}});
}

// A short conversation in a template's form; what it rejects is a difference too.
std::string probe(const ChatTemplate& chat_template) {
  const Json messages =
      Json::Array{message("system", "S."), message("user", "Q?"), message("assistant", "A."),
                  message("user", "Q2?"), message("assistant", "A2.")};
  try {
    return chat_template.render(messages).text;
  } catch (const Error& error) {
    return format("(rejected: {})", error.what());
  }
}

}  // namespace

ResolvedTemplate resolve_chat_template(const Tokenizer& tokenizer, const std::string& name, Log& log) {
  const std::map<std::string, std::string> tokens = tokenizer.named_tokens();
  std::optional<ChatTemplate> named;
  if (!name.empty()) {
    const BuiltinTemplate& builtin = find_builtin_template(name);
    named = ChatTemplate::parse(std::string(builtin.source), format("template {}", name), tokens);
  }
  const std::optional<std::string> own = tokenizer.chat_template();
  if (!own) {
    if (!named) {
      std::string known;
      for (const std::string& known_name : builtin_template_names())
        known += (known.empty() ? "" : ", ") + known_name;
      fail(ErrorKind::usage, "the model's tokenizer has no chat template; name one with template: {}", known);
    }
    return {std::move(*named), format("template {}", name)};
  }
  ChatTemplate chat_template = ChatTemplate::parse(*own, "the model's chat template", tokens);
  if (named && probe(chat_template) != probe(*named)) {
    log.warning("template {} is not what the model's own chat template gives; the model's own is used", name);
  }
  return {std::move(chat_template), "the model's own"};
}

std::vector<std::int32_t> answer_ends(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  std::vector<std::int32_t> ends = tokenizer.stop_ids();
  const Json messages = Json::Array{message("user", "Q?"), message("assistant", "A.")};
  std::string answer;
  try {
    const RenderedChat chat = chat_template.render(messages);
    for (const MessageSpan& span : chat.spans) {
      if (span.trained) answer += chat.text.substr(span.begin, span.end - span.begin);
    }
  } catch (const Error&) {  // a template that wants more than a question
  }
  const std::vector<std::int32_t> ids = tokenizer.encode(answer);
  if (!ids.empty() && tokenizer.is_special(ids.back()) && std::ranges::find(ends, ids.back()) == ends.end())
    ends.push_back(ids.back());
  std::ranges::sort(ends);
  return ends;
}

Tokenizer with_named_template(const Tokenizer& tokenizer, const std::string& name) {
  if (name.empty() || tokenizer.chat_template()) return tokenizer;
  std::string source(find_builtin_template(name).source);
  const auto chat_template =
      ChatTemplate::parse(source, format("template {}", name), tokenizer.named_tokens());
  return tokenizer.with_chat_template(std::move(source), answer_ends(chat_template, tokenizer));
}

Json template_variables(std::optional<bool> enable_thinking) {
  return enable_thinking ? Json::object({{"enable_thinking", *enable_thinking}}) : Json();
}

}  // namespace lode
