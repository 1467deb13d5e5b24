// The chat template of a model: its own, or one of ours by name.
#pragma once

#include <optional>
#include <string>
#include <vector>

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

// Where generation of an answer ends: the tokenizer's own ids, and the special token that the template puts
// last into an assistant's message.
std::vector<std::int32_t> answer_ends(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

// A tokenizer without a chat template gets the named one ("": none) and its end of an answer: what a model is
// fine-tuned with stays with it.
Tokenizer with_named_template(const Tokenizer& tokenizer, const std::string& name);

// Variables that a recipe hands to the template.
Json template_variables(std::optional<bool> enable_thinking);

}  // namespace lode
