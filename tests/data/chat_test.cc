#include "data/chat.h"

#include "data_testing.h"

namespace lode {
namespace {

Json json(std::string_view text) {
  return parse_json(text, "test");
}

ChatRow row_of(std::string_view record, const ChatSchema& schema = {}) {
  ChatRow row;
  const auto problem = read_chat_row(json(record), schema, row);
  EXPECT_FALSE(problem) << (problem ? problem->reason + ": " + problem->detail : "");
  return row;
}

std::string messages_of(std::string_view record, const ChatSchema& schema = {}) {
  return compact(row_of(record, schema).messages.dump());
}

// "reason | detail"
std::string problem_of(std::string_view record, const ChatSchema& schema = {}) {
  ChatRow row;
  const auto problem = read_chat_row(json(record), schema, row);
  return problem ? problem->reason + " | " + problem->detail : "none";
}

constexpr std::string_view kPair = R"([{"role":"user","content":"q"},{"role":"assistant","content":"a"}])";

TEST(Chat, EveryFormatBecomesMessages) {
  EXPECT_EQ(messages_of(R"({"instruction":"q","output":"a"})"), kPair);
  EXPECT_EQ(messages_of(R"({"instruction":"q","input":"","output":"a","system":"","history":[]})"), kPair);
  EXPECT_EQ(messages_of(R"({"conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"a"}]})"),
            kPair);
  EXPECT_EQ(
      messages_of(R"({"conversations":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})"),
      kPair);
  EXPECT_EQ(messages_of(R"({"messages":[{"role":"user","content":[{"type":"text","text":"q"}]},)"
                        R"({"role":"assistant","content":"a"}]})"),
            kPair);
  EXPECT_EQ(
      messages_of(
          R"({"prompt":[{"role":"user","content":"q"}],"completion":[{"role":"assistant","content":"a"}]})"),
      kPair);
  const ChatRow completion = row_of(R"({"prompt":"p","completion":"c"})");
  EXPECT_EQ(completion.kind, ChatRow::Kind::completion);
  EXPECT_EQ(completion.prompt + "|" + completion.text, "p|c");
  const ChatRow text = row_of(R"({"text":"t"})");
  EXPECT_EQ(text.kind, ChatRow::Kind::text);
  EXPECT_EQ(text.text, "t");
}

TEST(Chat, AlpacaWithEverything) {
  EXPECT_EQ(
      messages_of(R"({"instruction":"q","input":"more","output":"a","system":"s","history":[["h1","h2"]]})"),
      R"([{"role":"system","content":"s"},{"role":"user","content":"h1"},{"role":"assistant","content":"h2"},)"
      R"({"role":"user","content":"q\nmore"},{"role":"assistant","content":"a"}])");
  EXPECT_EQ(row_of(R"({"instruction":"q","output":"a","history":"[[\"x\",\"y\"]]"})").messages.size(), 4u);
}

TEST(Chat, ColumnsHaveDefaultsOfTheirOwn) {
  ChatSchema schema;
  schema.format = ChatFormat::alpaca;
  schema.columns.prompt = "question";  // the others keep their names
  EXPECT_EQ(messages_of(R"({"question":"q","output":"a"})", schema), kPair);
  EXPECT_EQ(problem_of(R"({"instruction":"q","output":"a"})", schema),
            "missing column | question: no such field; the record has instruction, output");
  schema.columns.query = "context";
  EXPECT_EQ(problem_of(R"({"question":"q","output":"a"})", schema),
            "missing column | context: no such field; the record has question, output");
  EXPECT_EQ(messages_of(R"({"question":"q","output":"a","context":null})", schema), kPair);
}

TEST(Chat, TagsRenameRoles) {
  ChatSchema schema;
  schema.format = ChatFormat::sharegpt;
  schema.columns.messages = "messages";
  schema.tags.role = "role";
  schema.tags.content = "content";
  schema.tags.user = "user";
  schema.tags.assistant = "assistant";
  EXPECT_EQ(messages_of(R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})",
                        schema),
            kPair);
  EXPECT_EQ(problem_of(R"({"messages":[{"role":"human","content":"q"}]})", schema),
            "unknown role | messages[0].role: unknown role \"human\"; known are system, user, assistant, "
            "observation, tool, function_call");
}

TEST(Chat, ToolCallsOfBothForms) {
  const ChatRow sharegpt = row_of(
      R"({"conversations":[{"from":"human","value":"q"},{"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{\"x\":1}}"},)"
      R"({"from":"observation","value":"42"},{"from":"gpt","value":"a"}],"tools":"[{\"name\":\"f\",\"parameters\":{}}]"})");
  const ChatRow openai = row_of(
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[{"type":"function",)"
      R"("function":{"name":"f","arguments":"{\"x\":1}"}}]},{"role":"tool","content":"42"},{"role":"assistant","content":"a"}],)"
      R"("tools":[{"type":"function","function":{"name":"f","parameters":{}}}]})");
  EXPECT_EQ(sharegpt.messages.dump(), openai.messages.dump());
  EXPECT_EQ(sharegpt.tools.dump(), openai.tools.dump());
  EXPECT_EQ(
      compact(openai.messages.as_array()[1].dump()),
      R"({"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":{"x":1}}}]})");
}

TEST(Chat, KeepsKeysForTheTemplateAndWeightsApart) {
  const ChatRow row = row_of(
      R"({"messages":[{"role":"user","content":"q","train":true},{"role":"assistant","content":"","reasoning_content":"r","weight":0.5}]})");
  EXPECT_EQ(compact(row.messages.as_array()[1].dump()),
            R"({"role":"assistant","content":"","reasoning_content":"r"})");
  EXPECT_EQ(row.weights, (std::vector<std::optional<float>>{1.0f, 0.5f}));
  const ChatRow split = row_of(
      R"({"prompt":[{"role":"user","content":"q"},{"role":"assistant","content":"old"},{"role":"user","content":"p"}],)"
      R"("completion":[{"role":"assistant","content":"a"}]})");
  EXPECT_EQ(split.weights[1], 0.0f);
  EXPECT_FALSE(split.weights[3]);
}

TEST(Chat, EveryProblemNamesTheField) {
  const auto messages = [](std::string_view list) {
    return problem_of(format(R"({{"messages":{}}})", list));
  };
  EXPECT_EQ(messages(R"([{"role":"usr","content":"q"}])"),
            "unknown role | messages[0].role: unknown role \"usr\"; known are system, user, assistant, tool, "
            "developer");
  EXPECT_EQ(messages(R"([{"content":"q"}])"), "missing role | messages[0].role: expected a role as a string");
  EXPECT_EQ(messages(R"([{"role":"assistant","content":"a"}])"),
            "wrong order | messages[0]: an assistant message must answer a user or tool message, found "
            "nothing before it");
  EXPECT_EQ(messages(R"([{"role":"user","content":"a"},{"role":"user","content":"b"}])"),
            "wrong order | messages[1]: a user message behind a user message; an assistant message must come "
            "between");
  EXPECT_EQ(messages(R"([{"role":"user","content":"a"},{"role":"system","content":"b"}])"),
            "wrong order | messages[1]: a system message must come first");
  EXPECT_EQ(messages(R"([{"role":"user","content":"a"}])"),
            "wrong order | messages[0]: the last message must be an assistant's");
  EXPECT_EQ(messages(R"([{"role":"tool","content":"a"}])"),
            "wrong order | messages[0]: a tool message must follow an assistant message");
  EXPECT_EQ(messages(R"([{"role":"user","content":" \n"}])"),
            "empty content | messages[0]: the user message is empty");
  EXPECT_EQ(messages(R"([{"role":"user","content":"q"},{"role":"assistant","content":""}])"),
            "empty content | messages[1]: the assistant message is empty");
  EXPECT_EQ(messages("[]"), "empty content | messages: no message");
  EXPECT_EQ(messages("3"), "wrong type | messages: expected an array of messages, found integer");
  EXPECT_EQ(messages("[3]"), "wrong type | messages[0]: expected a message as an object, found integer");
  EXPECT_EQ(messages(R"([{"role":"user","content":[{"type":"image_url"}]}])"),
            "unsupported content | messages[0].content[0]: a part of type image_url; only text is supported");
  EXPECT_EQ(messages(R"([{"role":"user","content":3}])"),
            "wrong type | messages[0].content: expected a string or an array of text parts, found integer");
  EXPECT_EQ(messages(R"([{"role":"user","content":"q","weight":-1}])"),
            "wrong weight | messages[0].weight: expected a number from 0 up");
  EXPECT_EQ(messages(R"([{"role":"user","content":"q"},{"role":"assistant","tool_calls":[{}]}])"),
            "bad tool call | messages[1].tool_calls[0]: a call without the name of a function");
  EXPECT_EQ(problem_of(R"({"instruction":"q"})"),
            "missing column | output: no such field; the record has instruction");
  EXPECT_EQ(problem_of(R"({"instruction":"","output":"a"})"),
            "empty content | instruction: the user message is empty");
  EXPECT_EQ(problem_of(R"({"instruction":"q","output":3})"),
            "wrong type | output: expected a string, found integer");
  EXPECT_EQ(problem_of(R"({"instruction":"q","output":"a","history":[["x"]]})"),
            "wrong type | history[0]: expected a question and an answer as strings");
  EXPECT_EQ(problem_of(R"({"instruction":"q","output":"a","tools":"no json"})").substr(0, 45),
            "broken JSON | tools: a string that is not JSO");
  EXPECT_EQ(problem_of(R"({"instruction":"q","output":"a","tools":[{}]})"),
            "wrong type | tools: a function without a name");
  EXPECT_EQ(problem_of(R"({"prompt":"p","completion":""})"), "empty content | completion: is empty");
  EXPECT_EQ(problem_of("[]"), "not an object | expected a JSON object, found array");
  expect_contains(problem_of(R"({"a":1})"), "unknown format | found the fields a; expected messages,");
}

TEST(Chat, FingerprintsTellSchemasApart) {
  ChatSchema a, b;
  EXPECT_EQ(a.fingerprint(), b.fingerprint());
  b.columns.prompt = "";
  EXPECT_NE(a.fingerprint(), b.fingerprint());
  b = a;
  b.tags.user = "u";
  ChatSchema c;
  c.tags.assistant = "u";
  EXPECT_NE(b.fingerprint(), c.fingerprint());
}

}  // namespace
}  // namespace lode
