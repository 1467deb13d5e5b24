#include "data/chat.h"

#include "core/fail.h"
#include "data/chat_messages.h"
#include "data/digest.h"

namespace lode {
namespace {

using chat::BadRow;

const Json* field(const Json& record, const std::string& name) {
  const Json* value = record.find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string names_of(const Json& record) {
  std::string names;
  for (const auto& [name, value] : record.as_object()) {
    if (names.size() > 200) return names + ", ...";
    names += (names.empty() ? "" : ", ") + name;
  }
  return names.empty() ? "nothing" : names;
}

// A column of one record.
class Column {
 public:
  Column(const Json& record, const std::optional<std::string>& mapped, std::string_view standard,
         bool required)
      : name_(mapped.value_or(std::string(standard))), value_(field(record, name_)) {
    const bool there = record.find(name_) != nullptr;
    if (value_ == nullptr && (required || (mapped && !there))) {
      throw BadRow{"missing column", format("{}: no such field; the record has {}", name_, names_of(record))};
    }
  }
  const std::string& name() const { return name_; }
  const Json* value() const { return value_; }
  std::string text() const {
    if (value_ == nullptr) return {};
    if (!value_->is_string()) {
      throw BadRow{"wrong type", format("{}: expected a string, found {}", name_, value_->type_name())};
    }
    return value_->as_string();
  }
  std::string filled_text() const {
    std::string all = text();
    if (chat::is_blank(all)) throw BadRow{"empty content", format("{}: is empty", name_)};
    return all;
  }

 private:
  std::string name_;
  const Json* value_;
};

void read_tools(const Json& record, const ChatSchema& schema, ChatRow& row) {
  const Column column(record, schema.columns.tools, "tools", false);
  if (column.value() == nullptr) return;
  const Json tools = chat::structure(*column.value(), column.name());
  if (tools.is_null()) return;
  const auto wrong = [&](const std::string& reason) {
    throw BadRow{"wrong type", format("{}: {}", column.name(), reason)};
  };
  if (!tools.is_array()) wrong(format("expected an array of functions, found {}", tools.type_name()));
  for (const Json& tool : tools.as_array()) {
    if (!tool.is_object()) wrong(format("expected functions as objects, found {}", tool.type_name()));
    const bool wrapped = tool.find("function") != nullptr;
    const Json* name = wrapped ? tool.at("function").find("name") : tool.find("name");
    if (name == nullptr || !name->is_string()) wrong("a function without a name");
    row.tools.push_back(wrapped ? tool : Json::object({{"type", "function"}, {"function", tool}}));
  }
}

void read_alpaca(const Json& record, const ChatSchema& schema, ChatRow& row) {
  const ChatColumns& columns = schema.columns;
  chat::MessageList list;
  const std::string system = Column(record, columns.system, "system", false).text();
  if (!chat::is_blank(system)) list.add("system", system, "system");
  const Column history(record, columns.history, "history", false);
  if (history.value() != nullptr) {
    const Json pairs = chat::structure(*history.value(), history.name());
    const auto wrong = [&](std::size_t i) {
      throw BadRow{"wrong type",
                   format("{}[{}]: expected a question and an answer as strings", history.name(), i)};
    };
    if (!pairs.is_null() && !pairs.is_array()) {
      throw BadRow{"wrong type",
                   format("{}: expected an array of pairs, found {}", history.name(), pairs.type_name())};
    }
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      const Json& pair = pairs.as_array()[i];
      if (!pair.is_array() || pair.size() != 2) wrong(i);
      for (std::size_t k = 0; k < 2; ++k) {
        if (!pair.as_array()[k].is_string()) wrong(i);
        list.add(k == 0 ? "user" : "assistant", pair.as_array()[k].as_string(),
                 format("{}[{}][{}]", history.name(), i, k));
      }
    }
  }
  const Column prompt(record, columns.prompt, "instruction", true);
  std::string question = prompt.text();
  const std::string query = Column(record, columns.query, "input", false).text();
  if (!query.empty()) question += (question.empty() ? "" : "\n") + query;
  list.add("user", question, prompt.name());
  const Column answer(record, columns.response, "output", true);
  list.add("assistant", answer.text(), answer.name());
  list.move_to(row);
}

void read_conversation(const Json& record, const ChatSchema& schema, bool openai, ChatRow& row) {
  const Column column(record, schema.columns.messages, openai ? "messages" : "conversations", true);
  const Json messages = chat::structure(*column.value(), column.name());
  chat::MessageList list;
  const Column system(record, schema.columns.system, "system", false);
  const std::string text = system.text();
  if (!chat::is_blank(text) && !chat::begins_with_system(messages, schema.tags, openai)) {
    list.add("system", text, system.name());
  }
  list.add_all(messages, schema.tags, openai, column.name());
  list.move_to(row);
}

// Strings, or lists of messages of which only the completion's answers are trained.
void read_completion(const Json& record, const ChatSchema& schema, ChatRow& row) {
  const Column prompt(record, schema.columns.prompt, "prompt", true);
  const Column completion(record,
                          schema.columns.completion ? schema.columns.completion : schema.columns.response,
                          "completion", true);
  if (!prompt.value()->is_array() && !completion.value()->is_array()) {
    row.kind = ChatRow::Kind::completion;
    row.prompt = prompt.text();
    row.text = completion.filled_text();
    return;
  }
  chat::MessageList list;
  list.add_all(chat::structure(*prompt.value(), prompt.name()), schema.tags, true, prompt.name());
  list.mask();
  list.add_all(chat::structure(*completion.value(), completion.name()), schema.tags, true, completion.name());
  list.move_to(row);
}

bool holds_roles(const Json& messages) {
  return messages.is_array() && messages.size() > 0 && messages.as_array()[0].find("role") != nullptr;
}

ChatFormat detect(const Json& record, const ChatSchema& schema) {
  const ChatColumns& columns = schema.columns;
  if (columns.messages) {
    const Json* messages = field(record, *columns.messages);
    const bool openai =
        schema.tags.role ? *schema.tags.role == "role" : messages != nullptr && holds_roles(*messages);
    return openai ? ChatFormat::messages : ChatFormat::sharegpt;
  }
  if (field(record, "messages") != nullptr) return ChatFormat::messages;
  if (field(record, "conversations") != nullptr) return ChatFormat::sharegpt;
  if (columns.completion || (field(record, "prompt") != nullptr && field(record, "completion") != nullptr)) {
    return ChatFormat::prompt_completion;
  }
  if (columns.prompt || columns.response || field(record, "instruction") != nullptr)
    return ChatFormat::alpaca;
  if (columns.text || field(record, "text") != nullptr) return ChatFormat::text;
  throw BadRow{"unknown format",
               format("found the fields {}; expected messages, conversations, instruction and output, prompt "
                      "and completion, or text; map other names with columns in dataset_info.json",
                      names_of(record))};
}

void read_row(const Json& record, const ChatSchema& schema, ChatRow& row) {
  if (!record.is_object()) {
    throw BadRow{"not an object", format("expected a JSON object, found {}", record.type_name())};
  }
  const ChatFormat format = schema.format == ChatFormat::detect ? detect(record, schema) : schema.format;
  switch (format) {
    case ChatFormat::alpaca:
      read_alpaca(record, schema, row);
      break;
    case ChatFormat::sharegpt: {
      // Some files use the field name of one form with the keys of the other.
      const Json* messages = field(record, schema.columns.messages.value_or("conversations"));
      const bool roles = messages != nullptr && schema.format == ChatFormat::detect && !schema.tags.role &&
                         holds_roles(*messages);
      ChatSchema own = schema;
      if (roles) own.columns.messages = schema.columns.messages.value_or("conversations");
      read_conversation(record, own, roles, row);
      break;
    }
    case ChatFormat::messages:
      read_conversation(record, schema, true, row);
      break;
    case ChatFormat::prompt_completion:
      read_completion(record, schema, row);
      break;
    case ChatFormat::text:
      row.kind = ChatRow::Kind::text;
      row.text =
          Column(record, schema.columns.text ? schema.columns.text : schema.columns.prompt, "text", true)
              .filled_text();
      break;
    case ChatFormat::detect:
      break;
  }
  if (row.kind == ChatRow::Kind::conversation) read_tools(record, schema, row);
}

}  // namespace

std::string ChatSchema::fingerprint() const {
  Digest digest;
  digest.field(static_cast<std::int64_t>(format));
  for (const auto* name :
       {&columns.prompt, &columns.query, &columns.response, &columns.history, &columns.system, &columns.tools,
        &columns.messages, &columns.completion, &columns.text, &tags.role, &tags.content, &tags.user,
        &tags.assistant, &tags.observation, &tags.function, &tags.system}) {
    digest.field(std::int64_t{name->has_value()}).field(name->value_or(""));
  }
  return digest.hex();
}

std::optional<ChatProblem> read_chat_row(const Json& record, const ChatSchema& schema, ChatRow& row) {
  row = {};
  try {
    read_row(record, schema, row);
  } catch (const BadRow& bad) {
    return ChatProblem{bad.reason, bad.detail};
  }
  return std::nullopt;
}

}  // namespace lode
