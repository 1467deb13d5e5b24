// Real templates over many conversations: the bytes of jinja2, and spans against an oracle that searches for
// unique words put into the messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "core/file.h"
#include "core/format.h"
#include "lode/error.h"
#include "text/chat_template.h"

namespace lode {
namespace {

Json fixture(const std::string& name) {
  return parse_json(real_files().read(std::string(LODE_TEST_DIR) + "/text/fixtures/" + name), name);
}

struct ChatCase {
  Json messages;
  RenderOptions options;
};

std::vector<ChatCase> load_cases(const Json& settings) {
  std::vector<ChatCase> cases;
  for (const char* file : {"chat_cases_0.json", "chat_cases_1.json"}) {
    const Json stored = fixture(file);
    for (const Json& each : stored.as_array()) {
      ChatCase chat;
      chat.messages = each.at("messages");
      chat.options.now = settings.at("now").as_int();
      if (const Json* prompt = each.find("prompt")) chat.options.add_generation_prompt = prompt->as_bool();
      if (const Json* variables = each.find("variables")) chat.options.variables = *variables;
      if (const Json* tools = each.find("tools")) {
        for (const Json& tool : tools->as_array()) {
          chat.options.tools.push_back(settings.at("tools").at(tool.as_string()));
        }
      }
      cases.push_back(std::move(chat));
    }
  }
  return cases;
}

struct RealTemplate {
  std::string name;
  ChatTemplate chat_template;
  std::string hashes;  // one of each case, blanks between; "-" where the reference refuses
};

std::vector<RealTemplate> load_templates(const Json& settings) {
  std::map<std::string, std::string> tokens;
  for (const auto& [name, token] : settings.at("tokens").as_object()) tokens[name] = token.as_string();
  std::vector<RealTemplate> templates;
  for (const char* file :
       {"chat_hashes_0.json", "chat_hashes_1.json", "chat_hashes_2.json", "chat_hashes_3.json"}) {
    const Json rows = fixture(file);
    for (const auto& [name, hashes] : rows.as_object()) {
      const std::string path = std::string(LODE_ASSET_DIR) + "/templates/" + name;
      if (!real_files().exists(path)) continue;
      templates.push_back(
          {name, ChatTemplate::parse(real_files().read(path), name, tokens), hashes.as_string()});
    }
  }
  return templates;
}

std::string hash(std::string_view text) {
  std::uint64_t value = 0xCBF29CE484222325;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  char buffer[9];
  std::snprintf(buffer, sizeof(buffer), "%08x", static_cast<unsigned>(value & 0xFFFFFFFF));
  return buffer;
}

TEST(ChatTemplateConformance, SameBytesAsJinja) {
  const Json settings = fixture("chat_settings.json");
  const std::vector<ChatCase> cases = load_cases(settings);
  const std::vector<RealTemplate> templates = load_templates(settings);
  if (templates.empty()) {
    std::puts("not run: asset missing (tools/fetch_templates.py)");
    return;
  }
  int differing = 0;
  for (const RealTemplate& each : templates) {
    std::string_view rest = each.hashes;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const std::string_view expected = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(rest.size(), expected.size() + 1));
      std::string found = "-", reason;
      try {
        found = hash(each.chat_template.render(cases[i].messages, cases[i].options).text);
      } catch (const Error& error) {
        reason = error.what();
      }
      if (found == expected) continue;
      ++differing;
      ADD_FAILURE() << each.name << ", conversation " << i << ": " << found << " for " << expected << " "
                    << reason;
    }
    EXPECT_TRUE(rest.empty()) << each.name;
  }
  std::printf("templates x conversations: %zu x %zu, %d differing\n", templates.size(), cases.size(),
              differing);
}

// Each text of a message becomes a word that occurs nowhere else.
std::string word(std::size_t message, std::string_view field) {
  return format("zq{}{}qz", field, message);
}

Json with_words(const Json& messages) {
  Json result = messages;
  for (std::size_t i = 0; i < result.size(); ++i) {
    Json& message = result.as_array()[i];
    const bool thought = message.find("content")->is_string() &&
                         message.at("content").as_string().find("<think>") != std::string::npos;
    if (message.at("content").is_string()) {
      message["content"] =
          (thought ? "<think>\n" + word(i, "inner") + "\n</think>\n\n" : "") + word(i, "content");
    }
    if (message.find("reasoning_content") != nullptr) message["reasoning_content"] = word(i, "thought");
    if (message.find("tool_calls") == nullptr) continue;
    for (Json& call : message["tool_calls"].as_array()) {
      Json& arguments = call["function"]["arguments"];
      if (arguments.is_object() && arguments.size() > 0) arguments["city"] = word(i, "city");
    }
  }
  return result;
}

struct Counts {
  int renders = 0, words = 0, wrong = 0;
};

void check_words(const std::string& name, const Json& messages, const RenderedChat& chat, Counts& counts) {
  std::vector<bool> trained(chat.text.size());
  std::vector<std::int64_t> owner(chat.text.size(), -1);
  std::size_t end = 0;
  for (const MessageSpan& span : chat.spans) {
    ASSERT_LE(end, span.begin) << name;
    ASSERT_LT(span.begin, span.end) << name;
    ASSERT_LE(span.end, chat.text.size()) << name;
    end = span.end;
    for (std::size_t at = span.begin; at < span.end; ++at) {
      trained[at] = span.trained;
      owner[at] = span.message;
    }
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const bool assistant = messages.as_array()[i].at("role").as_string() == "assistant";
    for (const char* field : {"content", "thought", "inner", "city"}) {
      const std::string wanted = word(i, field);
      for (std::size_t at = chat.text.find(wanted); at != std::string::npos;
           at = chat.text.find(wanted, at + 1)) {
        ++counts.words;
        bool right = true;
        for (std::size_t k = at; k < at + wanted.size(); ++k) right = right && trained[k] == assistant;
        right = right && (!assistant || owner[at] == static_cast<std::int64_t>(i));
        if (right) continue;
        ++counts.wrong;
        ADD_FAILURE() << name << ": " << wanted << (assistant ? " is not trained in\n" : " is trained in\n")
                      << chat.text;
        return;
      }
    }
  }
}

TEST(ChatTemplateConformance, MaskEqualsSpans) {
  const Json settings = fixture("chat_settings.json");
  const std::vector<ChatCase> cases = load_cases(settings);
  const std::vector<RealTemplate> templates = load_templates(settings);
  if (templates.empty()) {
    std::puts("not run: asset missing (tools/fetch_templates.py)");
    return;
  }
  Counts counts;
  for (const RealTemplate& each : templates) {
    for (const ChatCase& chat : cases) {
      const Json messages = with_words(chat.messages);
      RenderedChat rendered;
      try {
        rendered = each.chat_template.render(messages, chat.options);
      } catch (const Error&) {
        continue;  // the template refuses this conversation
      }
      ++counts.renders;
      check_words(each.name, messages, rendered, counts);
    }
  }
  std::printf("spans: %d renders, %d words of messages, %d in the wrong span\n", counts.renders, counts.words,
              counts.wrong);
  EXPECT_GT(counts.words, 1000);
}

// The last turn is learned from where the generation prompt ends to the end of the text, but for white space
// and what these templates print behind every turn of the model (a prompt, or another token).
TEST(ChatTemplateConformance, LastTurnIsLearnedToItsEnd) {
  static constexpr std::string_view kPrintsMore[] = {
      "llama.cpp/CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja",
      "llama.cpp/microsoft-Phi-3.5-mini-instruct.jinja", "vllm/dse_qwen2_vl.jinja",
      "vllm/tool_chat_template_phi4_mini.jinja", "vllm/tool_chat_template_toolace.jinja"};
  const Json settings = fixture("chat_settings.json");
  const std::vector<ChatCase> cases = load_cases(settings);
  int turns = 0;
  for (const RealTemplate& each : load_templates(settings)) {
    if (each.chat_template.has_generation_marks()) continue;  // they decide
    if (std::ranges::find(kPrintsMore, each.name) != std::end(kPrintsMore)) continue;
    for (const ChatCase& chat : cases) {
      const Json& messages = chat.messages;
      if (chat.options.add_generation_prompt || messages.size() == 0) continue;
      if (messages.as_array().back().at("role").as_string() != "assistant") continue;
      Json before = messages;
      before.as_array().pop_back();
      RenderOptions prompt = chat.options;
      prompt.add_generation_prompt = true;
      try {
        const RenderedChat rendered = each.chat_template.render(messages, chat.options);
        const std::string given = each.chat_template.render(before, prompt).text;
        if (!rendered.text.starts_with(given)) continue;
        std::size_t begin = rendered.text.size(), end = given.size();
        for (const MessageSpan& span : rendered.spans) {
          if (!span.trained || span.message + 1 != static_cast<std::int64_t>(messages.size())) continue;
          begin = std::min(begin, span.begin);
          end = std::max(end, span.end);
        }
        ++turns;
        EXPECT_GE(begin, given.size()) << each.name << rendered.text;
        EXPECT_EQ(rendered.text.find_first_not_of(" \t\n", end), std::string::npos)
            << each.name << rendered.text;
      } catch (const Error&) {
        continue;  // the template refuses the conversation or its beginning
      }
    }
  }
  std::printf("last turns learned to their end: %d\n", turns);
}

}  // namespace
}  // namespace lode
