// A conversation with a model through its chat template.
#pragma once

#include "infer/generate.h"
#include "text/chat_template.h"

namespace lode {

struct ChatOptions {
  GenerateOptions generate;
  std::string system;  // "": no system message
  Json variables;      // for the template: enable_thinking, ...
};

// Borrows all it is given.
class ChatSession {
 public:
  ChatSession(Context& context, Decoder& decoder, const Tokenizer& tokenizer,
              const ChatTemplate& chat_template, ChatOptions options);

  // Adds the user's message and the model's answer to the conversation. Throws Error(usage) when it no longer
  // fits the model's context, Error(data) when the template rejects it; the conversation is then as before.
  Generated answer(std::string_view text, const std::function<void(std::string_view)>& on_text = {});

  const Json& messages() const { return messages_; }

 private:
  Context& context_;
  Decoder& decoder_;
  const Tokenizer& tokenizer_;
  const ChatTemplate& template_;
  ChatOptions options_;
  Json messages_;
};

}  // namespace lode
