#include "text/builtin_templates.h"

#include <algorithm>
#include <array>

#include "core/fail.h"

namespace lode {
namespace {

constexpr std::string_view kChatml = R"({%- for message in messages -%}
{{ "<|im_start|>" + message.role + "\n" }}
{%- if message.content is string %}{{ message.content }}{% endif -%}
{{ "<|im_end|>\n" }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ "<|im_start|>assistant\n" }}{% endif -%}
)";

constexpr std::string_view kLlama3 = R"({{- bos_token }}
{%- for message in messages -%}
{{ "<|start_header_id|>" + message.role + "<|end_header_id|>\n\n" + message.content | trim + "<|eot_id|>" }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ "<|start_header_id|>assistant<|end_header_id|>\n\n" }}{% endif -%}
)";

constexpr std::string_view kGemma = R"({{- bos_token }}
{%- set state = namespace(system="") -%}
{%- for message in messages -%}
{%- if message.role == "system" -%}
{%- set state.system = message.content | trim + "\n\n" -%}
{%- else -%}
{{ "<start_of_turn>" + ("model" if message.role == "assistant" else message.role) + "\n" }}
{%- if message.role == "user" %}{{ state.system }}{% set state.system = "" %}{% endif -%}
{{ message.content | trim + "<end_of_turn>\n" }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ "<start_of_turn>model\n" }}{% endif -%}
)";

constexpr std::string_view kMistral = R"({{- bos_token }}
{%- set state = namespace(system="") -%}
{%- for message in messages -%}
{%- if message.role == "system" -%}
{%- set state.system = message.content + "\n\n" -%}
{%- elif message.role == "assistant" -%}
{{ " " + message.content + eos_token }}
{%- else -%}
{{ "[INST] " + state.system + message.content + " [/INST]" }}
{%- set state.system = "" -%}
{%- endif -%}
{%- endfor -%}
)";

constexpr std::string_view kDeepseek = R"({{- bos_token }}
{%- for message in messages -%}
{%- if message.role == "user" -%}
{{ "<｜User｜>" + message.content }}
{%- elif message.role == "assistant" -%}
{{ "<｜Assistant｜>" + message.content.split("</think>")[-1] + eos_token }}
{%- else -%}
{{ message.content }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ "<｜Assistant｜>" }}{% endif -%}
)";

constexpr std::string_view kAlpaca = R"({%- for message in messages -%}
{%- if message.role == "system" -%}
{{ message.content + "\n\n" }}
{%- elif message.role == "assistant" -%}
{{ "### Response:\n" + message.content + eos_token + "\n\n" }}
{%- else -%}
{{ "### Instruction:\n" + message.content + "\n\n" }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ "### Response:\n" }}{% endif -%}
)";

constexpr std::string_view kDefault = R"({%- for message in messages -%}
{%- if message.role == "system" -%}
{{ "System: " + message.content + eos_token + "\n" }}
{%- elif message.role == "assistant" -%}
{{ "Assistant: " + message.content + eos_token + "\n" }}
{%- else -%}
{{ "Human: " + message.content + eos_token + "\n" }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ "Assistant: " }}{% endif -%}
)";

constexpr std::array kTemplates = {
    BuiltinTemplate{"alpaca", kAlpaca},     BuiltinTemplate{"chatml", kChatml},
    BuiltinTemplate{"deepseek", kDeepseek}, BuiltinTemplate{"default", kDefault},
    BuiltinTemplate{"gemma", kGemma},       BuiltinTemplate{"llama3", kLlama3},
    BuiltinTemplate{"mistral", kMistral},
};

struct Alias {
  std::string_view name, target;
};
constexpr std::array kAliases = {
    Alias{"qwen", "chatml"},          Alias{"qwen2", "chatml"},        Alias{"qwen3", "chatml"},
    Alias{"qwen3_nothink", "chatml"}, Alias{"smollm", "chatml"},       Alias{"smollm2", "chatml"},
    Alias{"smollm3", "chatml"},       Alias{"yi", "chatml"},           Alias{"hermes", "chatml"},
    Alias{"gemma2", "gemma"},         Alias{"gemma3", "gemma"},        Alias{"gemma3_text", "gemma"},
    Alias{"deepseek3", "deepseek"},   Alias{"deepseekr1", "deepseek"}, Alias{"llama3.1", "llama3"},
    Alias{"llama3.2", "llama3"},
};

}  // namespace

const BuiltinTemplate& find_builtin_template(std::string_view name) {
  const auto alias = std::ranges::find(kAliases, name, &Alias::name);
  const std::string_view wanted = alias != kAliases.end() ? alias->target : name;
  const auto found = std::ranges::find(kTemplates, wanted, &BuiltinTemplate::name);
  if (found != kTemplates.end()) return *found;
  std::string known;
  for (const std::string& each : builtin_template_names()) known += (known.empty() ? "" : ", ") + each;
  fail(ErrorKind::usage, "template: \"{}\" is not known; known are {}", name, known);
}

std::vector<std::string> builtin_template_names() {
  std::vector<std::string> names;
  for (const BuiltinTemplate& each : kTemplates) names.emplace_back(each.name);
  for (const Alias& alias : kAliases) names.emplace_back(alias.name);
  std::ranges::sort(names);
  return names;
}

}  // namespace lode
