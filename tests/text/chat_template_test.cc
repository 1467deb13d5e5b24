// Which bytes of a rendered conversation belong to which message.
#include "text/chat_template.h"

#include <gtest/gtest.h>

#include "lode/error.h"
#include "text/builtin_templates.h"

namespace lode {
namespace {

ChatTemplate parse(std::string source) {
  return ChatTemplate::parse(std::move(source), "test.jinja", {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
}

Json messages(std::initializer_list<std::pair<const char*, const char*>> list) {
  Json result = Json::array();
  for (const auto& [role, content] : list) {
    result.push_back(Json::object({{"role", role}, {"content", content}}));
  }
  return result;
}

// "0[..]1{..}": the text with each span's message in brackets, in braces when it is trained.
std::string shown(const RenderedChat& chat) {
  std::string result;
  std::size_t at = 0;
  for (const MessageSpan& span : chat.spans) {
    EXPECT_LE(at, span.begin);
    EXPECT_LT(span.begin, span.end);
    EXPECT_LE(span.end, chat.text.size());
    result += chat.text.substr(at, span.begin - at) + std::to_string(span.message);
    result += (span.trained ? "{" : "[") + chat.text.substr(span.begin, span.end - span.begin);
    result += span.trained ? "}" : "]";
    at = span.end;
  }
  return result + chat.text.substr(at);
}

std::string render(const std::string& source, const Json& chat, RenderOptions options = {}) {
  return shown(parse(source).render(chat, options));
}

const Json kChat = messages({{"user", "Hi"}, {"assistant", "Yo"}});

TEST(ChatTemplate, BuiltinTemplates) {
  const Json chat =
      messages({{"system", "Be"}, {"user", "Hi"}, {"assistant", "Yo"}, {"user", "A"}, {"assistant", ""}});
  const auto builtin = [&](std::string_view name) {
    return render(std::string(find_builtin_template(name).source), chat);
  };
  EXPECT_EQ(builtin("qwen"),
            "0[<|im_start|>system\nBe<|im_end|>\n]1[<|im_start|>user\nHi<|im_end|>\n]"
            "2[<|im_start|>assistant\n]2{Yo<|im_end|>}2[\n]3[<|im_start|>user\nA<|im_end|>\n]"
            "4[<|im_start|>assistant\n]4{<|im_end|>}4[\n]");
  EXPECT_EQ(builtin("llama3"),
            "<s>0[<|start_header_id|>system<|end_header_id|>\n\nBe<|eot_id|>]"
            "1[<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>]"
            "2[<|start_header_id|>assistant<|end_header_id|>\n\n]2{Yo<|eot_id|>}"
            "3[<|start_header_id|>user<|end_header_id|>\n\nA<|eot_id|>]"
            "4[<|start_header_id|>assistant<|end_header_id|>\n\n]4{<|eot_id|>}");
  EXPECT_EQ(builtin("gemma3"),
            "<s>1[<start_of_turn>user\n]0[Be\n\n]1[Hi<end_of_turn>\n]2[<start_of_turn>model\n]2{Yo<end_of_"
            "turn>}2[\n]"
            "3[<start_of_turn>user\nA<end_of_turn>\n]4[<start_of_turn>model\n]4{<end_of_turn>}4[\n]");
  EXPECT_EQ(builtin("mistral"), "<s>1[[INST] ]0[Be\n\n]1[Hi [/INST]]2{ Yo</s>}3[[INST] A [/INST]]4{ </s>}");
  EXPECT_EQ(builtin("deepseek"),
            "<s>0[Be]1[<｜User｜>Hi]2[<｜Assistant｜>]2{Yo</s>}3[<｜User｜>A]4[<｜Assistant｜>]4{</s>}");
  EXPECT_EQ(builtin("alpaca"),
            "0[Be\n\n]1[### Instruction:\nHi\n\n]2[### Response:\n]2{Yo</s>}2[\n\n]"
            "3[### Instruction:\nA\n\n]4[### Response:\n]4{</s>}4[\n\n]");
  EXPECT_EQ(builtin("default"),
            "0[System: Be</s>\n]1[Human: Hi</s>\n]2[Assistant: ]2{Yo</s>}2[\n]3[Human: A</s>\n]4[Assistant: "
            "]4{</s>}4[\n]");
}

TEST(ChatTemplate, UnknownBuiltinListsAll) {
  for (const std::string& name : builtin_template_names())
    EXPECT_NO_THROW(find_builtin_template(name)) << name;
  try {
    find_builtin_template("nothing");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("alpaca, chatml, deepseek"), std::string::npos) << error.what();
  }
}

TEST(ChatTemplate, MessagesReachedInOtherWays) {
  const std::string body = "<{{ m.role }}>{{ m.content | trim | replace('Y', 'W') }}<end>\n";
  const std::string expected = "0[<user>Hi<end>\n]1{<assistant>Wo<end>}1[\n]";
  EXPECT_EQ(render("{% for m in messages %}" + body + "{% endfor %}", kChat), expected);
  EXPECT_EQ(render("{% for m in messages[0:] if m.role %}" + body + "{% endfor %}", kChat), expected);
  EXPECT_EQ(render("{% for i in range(messages | length) %}{% set m = messages[i] %}" + body + "{% endfor %}",
                   kChat),
            expected);
  EXPECT_EQ(
      render("{% set ns = namespace(l=messages) %}{% for m in ns.l | list %}" + body + "{% endfor %}", kChat),
      expected);
  EXPECT_EQ(
      render("{% macro show(m) %}" + body + "{% endmacro %}{% for x in messages %}{{ show(x) }}{% endfor %}",
             kChat),
      expected);
  EXPECT_EQ(render("{% for m in messages %}{% set x %}" + body + "{% endset %}{{ x }}{% endfor %}", kChat),
            expected);
  // No loop at all: what came from the message.
  EXPECT_EQ(render("Q: {{ messages[0].content }} A: {{ messages[1].content ~ eos_token }}", kChat),
            "Q: 0[Hi] A: 1{Yo</s>}");
}

TEST(ChatTemplate, GenerationPromptBoundsTheSpan) {
  const std::string body = "{% for m in messages %}[{{ m.role }}]{{ m.content }}.{% endfor %}";
  EXPECT_EQ(render(body, kChat), "0[[user]Hi.]1{[assistant]Yo.}");  // no prompt: the header is the model's
  EXPECT_EQ(render(body + "{% if add_generation_prompt %}[assistant]{% endif %}", kChat),
            "0[[user]Hi.]1[[assistant]]1{Yo.}");
  RenderOptions prompt;
  prompt.add_generation_prompt = true;
  EXPECT_EQ(render(body + "{% if add_generation_prompt %}[assistant]{% endif %}", kChat, prompt),
            "0[[user]Hi.]1[[assistant]]1{Yo.}[assistant]");
  // Older turns lose their thought, so a beginning is no prefix of the whole; the header is still known.
  const std::string thoughts =
      "{% for m in messages %}<{{ m.role }}>\n{% if m.role == 'assistant' and loop.last %}<think>{{ "
      "m.thought }}"
      "</think>{% endif %}{{ m.content }}<end>\n{% endfor %}"
      "{% if add_generation_prompt %}<assistant>\n<think>{% endif %}";
  Json chat = parse_json(R"([{"role":"user","content":"a"},{"role":"assistant","content":"b","thought":"t"},
      {"role":"user","content":"c"},{"role":"assistant","content":"d","thought":"u"}])",
                         "chat");
  EXPECT_EQ(render(thoughts, chat),
            "0[<user>\na<end>\n]1[<assistant>\n]1{b<end>}1[\n]2[<user>\nc<end>\n]"
            "3[<assistant>\n<think>]3{u</think>d<end>}3[\n]");
}

TEST(ChatTemplate, MarkersAreNeverCut) {
  const std::string source =
      "{% for m in messages %}<{{ m.role }}>{% for c in m.calls %}<tool>{{ c | tojson }}</tool>{% endfor %}"
      "{{ m.content }}<end>{% endfor %}{% if add_generation_prompt %}<assistant><think></think>{% endif %}";
  const Json chat = parse_json(
      R"([{"role":"user","content":"a"},{"role":"assistant","content":"b","calls":[{"n":"f","x":[1]}]}])",
      "chat");
  EXPECT_EQ(render(source, chat),
            "0[<user>a<end>]1[<assistant>]1{<tool>{\"n\": \"f\", \"x\": [1]}</tool>b<end>}");
}

TEST(ChatTemplate, OthersInsideTheModelsTurnAreNotLearned) {
  const std::string source =
      "{% for m in messages %}{% if m.role != 'tool' %}<{{ m.role }}>{{ m.content }}"
      "{% for k in range(loop.index, messages | length) %}{% set f = messages[k] %}"
      "{% if m.role == 'assistant' and f.role == 'tool' %}<r>{{ f.content }}</r>{% endif %}{% endfor %}"
      "<end>{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  const Json chat = messages({{"user", "a"}, {"assistant", "b"}, {"tool", "c"}});
  EXPECT_EQ(render(source, chat), "0[<user>a<end>]1[<assistant>]1{b}2[<r>c</r>]1{<end>}");
  EXPECT_EQ(
      render("{% for m in messages %}{{ m.content }}{{ loop.previtem.content if loop.last }};{% endfor %}",
             kChat),
      "0[Hi;]1{Yo}0[Hi]1{;}");
}

TEST(ChatTemplate, WhatATurnKeepsForLaterIsItsOwn) {
  EXPECT_EQ(render("{% set ns = namespace(o='') %}{% for m in messages %}{% set ns.o = ns.o ~ m.role ~ ':' ~ "
                   "m.content ~ "
                   "';' %}{% endfor %}{{ ns.o }}",
                   kChat),
            "0[user:Hi;]1{assistant:Yo;}");
}

TEST(ChatTemplate, GenerationMarksWin) {
  const ChatTemplate marked = parse(
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content "
      "}}<end>\n"
      "{% endgeneration %}{% else %}{{ m.content }}<end>\n{% endif %}{% endfor %}");
  EXPECT_TRUE(marked.has_generation_marks());
  EXPECT_FALSE(parse("x").has_generation_marks());
  EXPECT_EQ(shown(marked.render(kChat)), "0[<user>Hi<end>\n]1[<assistant>]1{Yo<end>\n}");
}

TEST(ChatTemplate, BadInput) {
  const ChatTemplate chatml = parse(std::string(find_builtin_template("chatml").source));
  EXPECT_THROW(chatml.render(Json::object()), Error);
  EXPECT_THROW(chatml.render(parse_json("[3]", "x")), Error);
  EXPECT_TRUE(chatml.render(Json::array()).text.empty());
  EXPECT_EQ(chatml.source(), find_builtin_template("chatml").source);
  RenderOptions options;
  options.variables = Json::object({{"messages", Json::array()}});
  EXPECT_THROW(chatml.render(kChat, options), Error);
  EXPECT_THROW(parse("{% if %}"), Error);
}

TEST(ChatTemplate, VariablesAndClock) {
  RenderOptions options;
  options.variables = Json::object({{"x", 3}, {"bos_token", "B"}});
  options.tools = parse_json(R"([{"a": "é"}])", "tools");
  options.now = 1768478400;
  EXPECT_EQ(parse("{{ bos_token }}{{ x + 1 }}{{ tools | tojson }}{{ documents is none }}{{ "
                  "strftime_now('%Y-%m-%d') }}")
                .render(Json::array(), options)
                .text,
            "B4[{\"a\": \"é\"}]True2026-01-15");
  EXPECT_EQ(parse("{{ tools }}").render(Json::array()).text, "None");
}

}  // namespace
}  // namespace lode
