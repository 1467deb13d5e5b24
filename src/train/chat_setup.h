// The chat template of a model: its own, or one of ours by name.
#pragma once

#include <optional>
#include <string>

#include "core/log.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lode {

struct ResolvedTemplate {
  ChatTemplate chat_template;
  std::string source;  // "the model's own", "template qwen"
};

// The model's own template wins; `name` ("": none) serves models without one, and is compared with the
// model's: a difference is said in `log`. Throws Error(usage) for an unknown name (listing the known ones)
// and when neither exists.
ResolvedTemplate resolve_chat_template(const Tokenizer& tokenizer, const std::string& name, Log& log);

// Variables that a recipe hands to the template.
Json template_variables(std::optional<bool> enable_thinking);

}  // namespace lode
