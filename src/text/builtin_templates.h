// Chat templates of our own writing for models that come without one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lode {

struct BuiltinTemplate {
  std::string_view name;    // chatml, llama3, ...
  std::string_view source;  // Jinja; uses bos_token and eos_token where the format has them
};

// `name` is one of ours or a name that LLaMA-Factory uses for the same format (qwen, gemma3, ...).
// Throws Error(usage) listing all names.
const BuiltinTemplate& find_builtin_template(std::string_view name);

std::vector<std::string> builtin_template_names();  // sorted, aliases included

}  // namespace lode
