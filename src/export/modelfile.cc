#include "export/modelfile.h"

#include <vector>

#include "core/fail.h"
#include "text/chat_template.h"

namespace lode {
namespace {

// A message is open + role + middle + content + close; a generation begins with the assistant's role.
struct Format {
  std::string_view open, middle, close;
  std::string_view assistant;   // its role's name
  std::string_view role;        // in Ollama's template language
  bool system_is_user = false;  // a system message has no role of its own

  std::string head(std::string_view name) const { return std::string(open).append(name).append(middle); }
  std::string message(std::string_view name, std::string_view content) const {
    return head(name).append(content).append(close);
  }
  std::string source() const {
    return format("{{{{- range .Messages }}}}{}{{{{ .Content }}}}{}{{{{ end }}}}{}", head(role), close,
                  head(assistant));
  }
};

constexpr Format kFormats[] = {
    {"<|im_start|>", "\n", "<|im_end|>\n", "assistant", "{{ .Role }}"},
    {"<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>", "assistant", "{{ .Role }}"},
    {"<start_of_turn>", "\n", "<end_of_turn>\n", "model",
     "{{ if eq .Role \"assistant\" }}model{{ else }}user{{ end }}", true},
};

Json message(std::string_view role, std::string_view content) {
  return Json::object({{"role", role}, {"content", content}});
}

// What a template makes of a conversation; "" when it rejects it.
std::string rendered(const ChatTemplate& chat_template, bool with_system) {
  Json messages = Json::array();
  if (with_system) messages.push_back(message("system", "S."));
  for (const auto& [role, content] : {std::pair{"user", "U1"}, {"assistant", "A1"}, {"user", "U2"}})
    messages.push_back(message(role, content));
  try {
    return chat_template.render(messages, {.add_generation_prompt = true}).text;
  } catch (const Error&) {
    return "";
  }
}

// "TEMPLATE" and, when the chat template has a system message of its own, "SYSTEM"; "" when the format does
// not give what the chat template does. bos: what both texts begin with, and Ollama puts there itself.
std::string lines_of(const Format& known, const std::string& bos, const std::string& plain,
                     const std::string& with_system) {
  const std::string turns = known.message("user", "U1") + known.message(known.assistant, "A1") +
                            known.message("user", "U2") + known.head(known.assistant);
  if (!plain.starts_with(bos) || !plain.ends_with(turns) || plain.size() < bos.size() + turns.size())
    return "";
  if (!known.system_is_user && with_system != bos + known.message("system", "S.") + turns) return "";
  const std::string source = format("TEMPLATE \"\"\"{}\"\"\"\n", known.source());
  const std::string system = plain.substr(bos.size(), plain.size() - bos.size() - turns.size());
  if (system.empty()) return source;
  const std::string before = known.head("system");
  if (!system.starts_with(before) || !system.ends_with(known.close)) return "";
  const std::string content = system.substr(before.size(), system.rfind(known.close) - before.size());
  if (content.find("\"\"\"") != std::string::npos) return "";
  return source + format("SYSTEM \"\"\"{}\"\"\"\n", content);
}

std::string known_template(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  const std::string plain = rendered(chat_template, false), with_system = rendered(chat_template, true);
  std::vector<std::string> begins{""};
  if (const auto bos = tokenizer.bos_id()) begins.push_back(tokenizer.token(*bos));
  for (const Format& known : kFormats) {
    for (const std::string& begin : begins) {
      const std::string lines = lines_of(known, begin, plain, with_system);
      if (!lines.empty()) return lines;
    }
  }
  return "";
}

}  // namespace

std::string ollama_modelfile(const std::string& gguf, const Tokenizer& tokenizer) {
  std::string text = format("FROM ./{}\n", gguf);
  if (const auto source = tokenizer.chat_template()) {
    text +=
        known_template(ChatTemplate::parse(*source, "chat template", tokenizer.named_tokens()), tokenizer);
  }
  for (const std::int32_t id : tokenizer.stop_ids()) {
    if (tokenizer.has_token(id)) text += format("PARAMETER stop \"{}\"\n", tokenizer.token(id));
  }
  return text;
}

}  // namespace lode
