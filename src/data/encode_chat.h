// Chat rows as tokens with a weight for each: what is to be learned, by the spans of the chat template.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/chat.h"
#include "data/prepare.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lode {

// Noon of 26 July 2024, the date that templates print when they have no clock: prepared data must not depend
// on the day.
inline constexpr std::int64_t kTemplateTime = 1721995200;

struct ChatEncodeOptions {
  std::string default_system;    // for conversations without one; empty: none
  bool train_on_prompt = false;  // every token is a target
  bool mask_history = false;     // of a conversation only the last assistant message is
  Json variables;                // for the template
};

// Weights: 1 for what the template's spans say the model has to generate (the end of the turn included), 0
// for the rest. A weight that a message states itself counts for its spans instead; mask_history wins over
// it. A completion is a target with the end token behind it, the prompt is not; of plain text everything is.
// A token belongs to a span when it begins inside. Thread-safe.
class ChatEncoder {
 public:
  // Without a template, conversations are refused (Error(usage) listing templates to name). Throws
  // Error(usage) when train_on_prompt and mask_history are both set.
  ChatEncoder(Tokenizer tokenizer, std::optional<ChatTemplate> chat_template, ChatEncodeOptions options);

  EncodedRecord encode(const ChatRow& row) const;  // throws Error(data) for what the template rejects
  // Which message's text spells a special token, which then is one: "message 2 (user): \"<|im_end|>\"".
  // Empty: none does.
  std::string special_in_content(const ChatRow& row) const;
  const std::string& fingerprint() const { return fingerprint_; }  // of tokenizer, template and options
  const Tokenizer& tokenizer() const { return tokenizer_; }
  const std::optional<ChatTemplate>& chat_template() const { return chat_template_; }

 private:
  EncodedRecord encode_conversation(const ChatRow& row) const;
  EncodedRecord encode_completion(const ChatRow& row) const;
  EncodedRecord encode_text(const ChatRow& row) const;

  Tokenizer tokenizer_;
  std::optional<ChatTemplate> chat_template_;
  ChatEncodeOptions options_;
  std::vector<std::int32_t> prefix_;  // what the tokenizer puts before every text
  std::string fingerprint_;
};

// For prepare_data: records of `schema` through `encoder`. Bad records fail or are skipped as `bad_records`
// says; a row without a target is dropped and listed in the report; one whose messages spell special tokens
// is kept and counted there.
TextEncoder chat_text_encoder(std::shared_ptr<const ChatEncoder> encoder, ChatSchema schema,
                              BadRecords bad_records);

}  // namespace lode
