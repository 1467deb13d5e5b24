#include "export/modelfile.h"

#include "core/format.h"

namespace lode {
namespace {

struct Format {
  std::string_view token;  // that only this format has
  std::string_view text;   // in Ollama's template language
};

constexpr Format kFormats[] = {
    {"<|im_start|>",
     "{{- range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>\n{{ end "
     "}}<|im_start|>assistant\n"},
    {"<|start_header_id|>",
     "{{- range .Messages }}<|start_header_id|>{{ .Role }}<|end_header_id|>\n\n{{ .Content }}<|eot_id|>{{ "
     "end }}"
     "<|start_header_id|>assistant<|end_header_id|>\n\n"},
    {"<start_of_turn>",
     "{{- range .Messages }}<start_of_turn>{{ if eq .Role \"assistant\" }}model{{ else }}user{{ end }}\n{{ "
     ".Content }}"
     "<end_of_turn>\n{{ end }}<start_of_turn>model\n"},
};

}  // namespace

std::string ollama_modelfile(const std::string& gguf, const Tokenizer& tokenizer) {
  std::string text = format("FROM ./{}\n", gguf);
  for (const Format& known : kFormats) {
    if (!tokenizer.token_id(known.token)) continue;
    text += format("TEMPLATE \"\"\"{}\"\"\"\n", known.text);
    break;
  }
  for (const std::int32_t id : tokenizer.stop_ids()) {
    if (tokenizer.has_token(id)) text += format("PARAMETER stop \"{}\"\n", tokenizer.token(id));
  }
  return text;
}

}  // namespace lode
