// The messages of one conversation, checked while they are added; used by chat.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/chat.h"

namespace lode::chat {

// Thrown for a record that cannot be used.
struct BadRow {
  std::string reason, detail;
};

bool is_blank(std::string_view text);

// A value that may also be given as a string of JSON, as CSV files do; null for a blank string.
Json structure(const Json& value, const std::string& field);

// Whether the first of `messages` is a system message.
bool begins_with_system(const Json& messages, const ChatTags& tags, bool openai);

class MessageList {
 public:
  // `field` names the place in messages about it.
  void add(std::string_view role, const std::string& content, const std::string& field);
  // Messages of the form that `tags` describe; what they leave open is OpenAI's or sharegpt's.
  void add_all(const Json& messages, const ChatTags& tags, bool openai, const std::string& field);
  // What was added so far is not trained, unless it says so itself.
  void mask();
  // Throws BadRow when the conversation does not end with an answer.
  void move_to(ChatRow& row);

 private:
  void append(Json message, std::optional<float> weight, const std::string& field);

  Json messages_ = Json::array();
  std::vector<std::optional<float>> weights_;
  std::string last_role_;
  std::string last_field_;
};

}  // namespace lode::chat
