// Chat and instruction records of any known format, as one form.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json.h"

namespace lode {

enum class ChatFormat {
  detect,             // by the fields of each record
  alpaca,             // instruction, input, output, system, history
  sharegpt,           // conversations of {from, value}; also any other names, by columns and tags
  messages,           // OpenAI's: messages of {role, content, tool_calls, ...}
  prompt_completion,  // two strings without any template
  text,               // one string, all of it trained
};

// A field's name, or the default one when the data set's description does not map it. A mapped field that a
// record lacks is an error; a default one that is optional may be missing.
struct ChatColumns {
  std::optional<std::string> prompt, query, response, history, system, tools, messages, completion, text;
};

struct ChatTags {
  std::optional<std::string> role, content, user, assistant, observation, function, system;
};

struct ChatSchema {
  ChatFormat format = ChatFormat::detect;
  ChatColumns columns;
  ChatTags tags;
  std::string fingerprint() const;  // equal only for equal schemas
};

struct ChatRow {
  enum class Kind { conversation, completion, text };
  Kind kind = Kind::conversation;
  // conversation: OpenAI's form; roles system or developer (first only), user, assistant, tool; content is a
  // string; tool_calls with arguments as objects; further keys of a message are kept for the template
  Json messages = Json::array();
  Json tools;                                 // array of {"type": "function", "function": {...}} or null
  std::vector<std::optional<float>> weights;  // of each message, where the record states one
  std::string prompt, text;                   // completion: both; text: text alone
};

// What is wrong with a record: `reason` is the kind, under which it is counted; `detail` names the field.
struct ChatProblem {
  std::string reason, detail;
};

// Fills `row`, or says why the record cannot be used.
std::optional<ChatProblem> read_chat_row(const Json& record, const ChatSchema& schema, ChatRow& row);

}  // namespace lode
