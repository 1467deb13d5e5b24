#include "infer/chat.h"

#include <gtest/gtest.h>

#include "lode/error.h"
#include "nn/tiny_decoder.h"
#include "text/small_tokenizer.h"

namespace lode::test {
namespace {

DecoderSpec chat_spec() {
  DecoderSpec spec = llama_spec();
  spec.vocab_size = 271;
  spec.max_positions = 160;
  return spec;
}

struct ChatTest : testing::Test {
  Tokenizer tokenizer = load_document(small_document());
  TinyDecoder tiny{chat_spec(), DType::f32, 1, false};
  ChatTemplate chat_template = ChatTemplate::parse(
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}",
      "test template", {});
  ChatOptions options{.generate = {.sampling = {.temperature = 0}, .max_new_tokens = 12}, .system = "hi"};
};

TEST_F(ChatTest, AnswersAreGeneratedAfterTheRenderedConversation) {
  ChatSession session(tiny.context, tiny.decoder, tokenizer, chat_template, options);
  const Generated first = session.answer("one");
  const Generated expected =
      generate(tiny.context, tiny.decoder, tokenizer, "[system]hi\n[user]one\n[assistant]", options.generate);
  EXPECT_EQ(first.tokens, expected.tokens);
  EXPECT_EQ(first.text, expected.text);
  const Generated second = session.answer("two");
  const Generated after = generate(
      tiny.context, tiny.decoder, tokenizer,
      "[system]hi\n[user]one\n[assistant]" + first.text + "\n[user]two\n[assistant]", options.generate);
  EXPECT_EQ(second.tokens, after.tokens);
  ASSERT_EQ(session.messages().size(), 5u);
  EXPECT_EQ(session.messages().as_array()[4].at("content").as_string(), second.text);
}

TEST_F(ChatTest, ATokenOfTheListEndsTheAnswer) {
  ChatSession plain(tiny.context, tiny.decoder, tokenizer, chat_template, options);
  const Generated whole = plain.answer("one");
  ASSERT_GT(whole.tokens.size(), 1u);
  options.generate.stop_ids = {whole.tokens.front()};
  ChatSession session(tiny.context, tiny.decoder, tokenizer, chat_template, options);
  const Generated cut = session.answer("one");
  EXPECT_TRUE(cut.tokens.empty());
  EXPECT_EQ(cut.stopped_by, "eos");
}

TEST_F(ChatTest, AMessageThatDoesNotFitLeavesTheConversationAsItWas) {
  ChatSession session(tiny.context, tiny.decoder, tokenizer, chat_template, options);
  EXPECT_THROW(session.answer(std::string(500, '?')), Error);
  EXPECT_EQ(session.messages().size(), 1u);
}

}  // namespace
}  // namespace lode::test
