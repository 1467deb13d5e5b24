#include "data/chat_messages.h"

#include "core/fail.h"

namespace lode::chat {
namespace {

// A role as files spell it.
struct Spelling {
  std::string name;
  std::string_view role;
};

std::vector<Spelling> spellings(const ChatTags& tags, bool openai) {
  std::vector<Spelling> all;
  const auto add = [&](const std::optional<std::string>& mapped, std::string_view role,
                       std::initializer_list<const char*> standard) {
    if (mapped) {
      all.push_back({*mapped, role});
    } else {
      for (const char* name : standard) all.push_back({name, role});
    }
  };
  if (openai) {
    add(tags.system, "system", {"system"});
    add(tags.user, "user", {"user"});
    add(tags.assistant, "assistant", {"assistant"});
    add(tags.observation, "tool", {"tool"});
    add(tags.function, "function_call", {});
    add({}, "developer", {"developer"});
  } else {
    add(tags.system, "system", {"system"});
    add(tags.user, "user", {"human", "user"});
    add(tags.assistant, "assistant", {"gpt", "assistant"});
    add(tags.observation, "tool", {"observation", "tool"});
    add(tags.function, "function_call", {"function_call"});
  }
  return all;
}

std::string role_of(const Json& message, const ChatTags& tags, bool openai, const std::string& field) {
  const std::string key = tags.role.value_or(openai ? "role" : "from");
  const Json* value = message.find(key);
  if (value == nullptr || !value->is_string()) {
    throw BadRow{"missing role", format("{}.{}: expected a role as a string", field, key)};
  }
  std::string known;
  for (const Spelling& spelling : spellings(tags, openai)) {
    if (spelling.name == value->as_string()) return std::string(spelling.role);
    known += (known.empty() ? "" : ", ") + spelling.name;
  }
  throw BadRow{"unknown role",
               format("{}.{}: unknown role \"{}\"; known are {}", field, key, value->as_string(), known)};
}

// Strings as they are; lists of text parts as one string.
std::string content_of(const Json* content, const std::string& field) {
  if (content == nullptr || content->is_null()) return {};
  if (content->is_string()) return content->as_string();
  if (!content->is_array()) {
    throw BadRow{"wrong type", format("{}: expected a string or an array of text parts, found {}", field,
                                      content->type_name())};
  }
  std::string text;
  for (std::size_t i = 0; i < content->size(); ++i) {
    const Json& part = content->as_array()[i];
    const Json* type = part.find("type");
    const Json* part_text = part.find("text");
    if (part.is_string()) {
      text += part.as_string();
    } else if (part_text != nullptr && part_text->is_string()) {
      text += part_text->as_string();
    } else {
      throw BadRow{"unsupported content",
                   format("{}[{}]: a part of type {}; only text is supported", field, i,
                          type != nullptr && type->is_string() ? type->as_string() : "unknown")};
    }
  }
  return text;
}

std::optional<float> weight_of(const Json& message, const std::string& field) {
  if (const Json* weight = message.find("weight"); weight != nullptr && !weight->is_null()) {
    if (!weight->is_number() || !(weight->as_double() >= 0) || !(weight->as_double() <= 1e6)) {
      throw BadRow{"wrong weight", format("{}.weight: expected a number from 0 up", field)};
    }
    return static_cast<float>(weight->as_double());
  }
  for (const char* key : {"train", "loss"}) {
    const Json* flag = message.find(key);
    if (flag == nullptr || flag->is_null()) continue;
    if (!flag->is_bool()) throw BadRow{"wrong weight", format("{}.{}: expected true or false", field, key)};
    return flag->as_bool() ? 1.0f : 0.0f;
  }
  return std::nullopt;
}

// One call in OpenAI's form, with arguments as an object where they are one.
Json make_call(const Json& call, const std::string& field) {
  const Json* function = call.find("function");
  const bool wrapped = function != nullptr && function->is_object();
  Json inner = wrapped ? *function : call;
  const Json* name = inner.find("name");
  if (name == nullptr || !name->is_string() || name->as_string().empty()) {
    throw BadRow{"bad tool call", format("{}: a call without the name of a function", field)};
  }
  Json& arguments = inner["arguments"];
  if (arguments.is_null()) arguments = Json::object();
  if (arguments.is_string()) {
    try {
      Json parsed = parse_json(arguments.as_string(), field);
      if (parsed.is_object()) arguments = std::move(parsed);
    } catch (const Error&) {  // stays the text that it is
    }
  }
  if (!wrapped) return Json::object({{"type", "function"}, {"function", std::move(inner)}});
  Json out = call;
  out["function"] = std::move(inner);
  return out;
}

Json make_calls(const Json& calls, const std::string& field) {
  Json out = Json::array();
  if (calls.is_object()) {
    out.push_back(make_call(calls, field));
  } else if (calls.is_array()) {
    for (std::size_t i = 0; i < calls.size(); ++i)
      out.push_back(make_call(calls.as_array()[i], format("{}[{}]", field, i)));
  } else {
    throw BadRow{"bad tool call",
                 format("{}: expected an array of calls, found {}", field, calls.type_name())};
  }
  return out;
}

bool is_filled(const Json& message, std::string_view key) {
  const Json* value = message.find(key);
  return value != nullptr && ((value->is_string() && !is_blank(value->as_string())) || value->size() > 0);
}

Json make_message(const Json& source, const std::string& role, const ChatTags& tags, bool openai,
                  const std::string& field) {
  const std::string role_key = tags.role.value_or(openai ? "role" : "from");
  const std::string content_key = tags.content.value_or(openai ? "content" : "value");
  const std::string content = content_of(source.find(content_key), format("{}.{}", field, content_key));
  Json message = Json::object({{"role", role == "function_call" ? "assistant" : role}, {"content", content}});
  for (const auto& [key, value] : source.as_object()) {
    if (key == role_key || key == content_key || key == "weight" || key == "train" || key == "loss") continue;
    if (value.is_null() || message.find(key) != nullptr) continue;
    if (key == "tool_calls" && value.size() == 0) continue;
    message[key] = key == "tool_calls" ? make_calls(value, format("{}.tool_calls", field)) : value;
  }
  if (role != "function_call") return message;
  message["content"] = "";
  message["tool_calls"] = make_calls(structure(content, format("{}.{}", field, content_key)),
                                     format("{}.{}", field, content_key));
  return message;
}

}  // namespace

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
}

Json structure(const Json& value, const std::string& field) {
  if (!value.is_string()) return value;
  if (is_blank(value.as_string())) return {};
  try {
    return parse_json(value.as_string(), field);
  } catch (const Error& error) {
    throw BadRow{"broken JSON", format("{}: a string that is not JSON ({})", field, error.what())};
  }
}

bool begins_with_system(const Json& messages, const ChatTags& tags, bool openai) {
  if (!messages.is_array() || messages.size() == 0) return false;
  const Json* role = messages.as_array()[0].find(tags.role.value_or(openai ? "role" : "from"));
  if (role == nullptr || !role->is_string()) return false;
  return role->as_string() == tags.system.value_or("system") || role->as_string() == "developer";
}

void MessageList::add(std::string_view role, const std::string& content, const std::string& field) {
  append(Json::object({{"role", role}, {"content", content}}), std::nullopt, field);
}

void MessageList::add_all(const Json& messages, const ChatTags& tags, bool openai, const std::string& field) {
  if (!messages.is_array()) {
    throw BadRow{"wrong type",
                 format("{}: expected an array of messages, found {}", field, messages.type_name())};
  }
  if (messages.size() == 0) throw BadRow{"empty content", format("{}: no message", field)};
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Json& source = messages.as_array()[i];
    const std::string place = format("{}[{}]", field, i);
    if (!source.is_object()) {
      throw BadRow{"wrong type",
                   format("{}: expected a message as an object, found {}", place, source.type_name())};
    }
    const std::string role = role_of(source, tags, openai, place);
    append(make_message(source, role, tags, openai, place), weight_of(source, place), place);
  }
}

void MessageList::append(Json message, std::optional<float> weight, const std::string& field) {
  const std::string role = message.at("role").as_string();
  const auto out_of_order = [&](std::string_view reason) {
    throw BadRow{"wrong order", format("{}: {}", field, reason)};
  };
  const bool system = role == "system" || role == "developer";
  if (system && messages_.size() > 0 && last_role_ != "system") {
    out_of_order(format("a {} message must come first", role));
  } else if (role == "user" && (last_role_ == "user" || last_role_ == "tool")) {
    out_of_order(
        format("a user message behind a {} message; an assistant message must come between", last_role_));
  } else if (role == "assistant" && last_role_ != "user" && last_role_ != "tool") {
    out_of_order(format("an assistant message must answer a user or tool message, found {} before it",
                        last_role_.empty() ? "nothing" : last_role_));
  } else if (role == "tool" && last_role_ != "calls" && last_role_ != "assistant" && last_role_ != "tool") {
    out_of_order("a tool message must follow an assistant message");
  } else if (last_role_ == "calls" && role != "tool") {
    out_of_order(format("a {} message where the result of a tool call must come", role));
  }
  const bool calls = role == "assistant" && is_filled(message, "tool_calls");
  const bool filled = calls || is_filled(message, "content") || role == "tool" ||
                      (role == "assistant" && is_filled(message, "reasoning_content"));
  if (!filled) throw BadRow{"empty content", format("{}: the {} message is empty", field, role)};
  last_role_ = system ? "system" : calls ? "calls" : role;
  last_field_ = field;
  messages_.push_back(std::move(message));
  weights_.push_back(weight);
}

void MessageList::mask() {
  for (std::optional<float>& weight : weights_) weight = weight.value_or(0.0f);
}

void MessageList::move_to(ChatRow& row) {
  if (last_role_ != "assistant" && last_role_ != "calls") {
    throw BadRow{"wrong order", format("{}: the last message must be an assistant's", last_field_)};
  }
  row.messages = std::move(messages_);
  row.weights = std::move(weights_);
}

}  // namespace lode::chat
