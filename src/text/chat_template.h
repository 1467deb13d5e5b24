// Chat templates: a conversation to text, and which bytes of the text belong to which message.
//
// Spans come from the renderer, never from searching the text: every byte remembers the message whose data it
// came from and the message whose loop iteration emitted it.
//
// A trained span (assistant messages only) begins at the first byte that the model has to generate: after
// what the generation prompt of messages[0..i) already provides. It ends after the end of turn that the
// template emits for the message, also when it prints the last one's behind its loop; white space that the
// template itself puts after that marker is not part of it (directly after the message's own text it is the
// marker, and is). What belongs to other messages inside (tool results in the model's turn) is left out, so a
// message can have several spans. When the template marks them itself ({% generation %}), these marks are the
// trained spans.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/json.h"

namespace lode {

struct RenderOptions {
  bool add_generation_prompt = false;
  Json tools;             // array of {"type": "function", "function": {...}}; null: none
  Json variables;         // object of further names for the template, such as enable_thinking; null: none
  std::int64_t now = -1;  // seconds since 1970 that strftime_now shows in local time; -1: the clock
};

struct MessageSpan {
  std::int64_t message = 0;        // index into messages
  std::size_t begin = 0, end = 0;  // bytes of text; never empty
  bool trained = false;            // the model learns to produce these bytes
};

struct RenderedChat {
  std::string text;                // to be tokenised without adding special tokens
  std::vector<MessageSpan> spans;  // ascending, not overlapping; a message that printed nothing has none
};

// Immutable after parse; rendering is safe from several threads at once.
class ChatTemplate {
 public:
  // Throws Error(data) with `what` (a file name) and the line. `named_tokens` are bos_token, eos_token, ...
  static ChatTemplate parse(std::string source, std::string what,
                            std::map<std::string, std::string> named_tokens);

  // `messages` is an array of objects. Throws Error(data) with the template's line: for what the template
  // rejects (raise_exception), for expressions without meaning, for a render beyond the limits.
  RenderedChat render(const Json& messages, const RenderOptions& options = {}) const;

  bool has_generation_marks() const;
  const std::string& source() const;

 private:
  struct State;
  explicit ChatTemplate(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

}  // namespace lode
