#include "infer/generate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "nn/tiny_decoder.h"
#include "temp_folder.h"
#include "text/small_tokenizer.h"

namespace lode::test {
namespace {

DecoderSpec spec_of(std::int64_t max_positions = 64) {
  DecoderSpec spec = llama_spec();
  spec.vocab_size = 271;
  spec.max_positions = max_positions;
  return spec;
}

struct GenerateTest : testing::Test {
  Tokenizer tokenizer = load_document(small_document());
  TinyDecoder tiny{spec_of(), DType::f32, 1, false};

  Generated run(std::string_view prompt, const GenerateOptions& options,
                const std::function<void(std::string_view)>& on_text = {}) {
    return generate(tiny.context, tiny.decoder, tokenizer, prompt, options, on_text);
  }
};

// Each token is the likeliest after a forward over the whole sequence, without a cache.
TEST_F(GenerateTest, GreedyEqualsForwardsOverTheWhole) {
  const Generated out = run("hello world", {.sampling = {.temperature = 0}, .max_new_tokens = 20});
  ASSERT_EQ(out.tokens.size(), 20u);
  EXPECT_EQ(out.stopped_by, "length");
  std::vector<std::int32_t> tokens = tokenizer.encode("hello world");
  EXPECT_EQ(out.prompt_tokens, static_cast<std::int64_t>(tokens.size()));
  for (const std::int32_t token : out.tokens) {
    const Value hidden = tiny.decoder.forward(tiny.context, pack({{0, tokens}}, 1));
    const Tensor logits = tiny.decoder.last_logits(tiny.context, hidden);
    const float* row = logits.view().row<float>(0);
    EXPECT_EQ(std::max_element(row, row + 271) - row, token);
    tokens.push_back(token);
  }
  EXPECT_EQ(out.text, tokenizer.decode(out.tokens, true));
}

TEST_F(GenerateTest, SameSeedSameText) {
  const auto text = [&](std::uint64_t seed) {
    return run("hello", {.sampling = {.temperature = 1, .seed = seed}, .max_new_tokens = 30}).tokens;
  };
  EXPECT_EQ(text(1), text(1));
  EXPECT_NE(text(1), text(2));
}

TEST_F(GenerateTest, StreamedPartsAreTheText) {
  for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
    std::string streamed;
    int parts = 0;
    const GenerateOptions options{.sampling = {.temperature = 1.5, .seed = seed}, .max_new_tokens = 40};
    const Generated out = run("hello", options, [&](std::string_view part) {
      EXPECT_FALSE(part.empty());
      streamed += part;
      ++parts;
    });
    EXPECT_EQ(streamed, out.text);
    EXPECT_GT(parts, 10) << "nothing is held back without need";
    EXPECT_EQ(out.text, tokenizer.decode(out.tokens, true));
  }
}

// Every piece of the free text as a stop string, most of which lie across tokens: the text ends before its
// first place.
TEST_F(GenerateTest, StopsBeforeAStopString) {
  GenerateOptions options{.sampling = {.temperature = 1.5, .seed = 11}, .max_new_tokens = 30};
  const std::string whole = run("hello", options).text;
  ASSERT_GT(whole.size(), 20u);
  int stopped = 0;
  for (std::size_t length : {1u, 2u, 3u, 7u}) {
    for (std::size_t begin = 0; begin + length <= whole.size(); begin += 2) {
      const std::string stop = whole.substr(begin, length);
      options.stop =
          begin % 4 == 0 ? std::vector<std::string>{"never said", stop, ""} : std::vector<std::string>{stop};
      std::string streamed;
      const Generated out = run("hello", options, [&](std::string_view part) { streamed += part; });
      EXPECT_EQ(out.text, whole.substr(0, whole.find(stop)));
      EXPECT_EQ(streamed, out.text);
      EXPECT_TRUE(out.stopped_by == "stop" || begin + length == whole.size())
          << out.stopped_by << " at " << begin;
      stopped += out.stopped_by == "stop" ? 1 : 0;
    }
  }
  EXPECT_GT(stopped, 20);
}

TEST_F(GenerateTest, TextThatOnlyBeginsAStopStringIsShownAtTheEnd) {
  GenerateOptions options{.sampling = {.temperature = 1.5, .seed = 11}, .max_new_tokens = 30};
  const std::string whole = run("hello", options).text;
  options.stop = {whole.substr(whole.size() - 4) + "and more"};
  std::string streamed;
  const Generated out = run("hello", options, [&](std::string_view part) { streamed += part; });
  EXPECT_EQ(out.text, whole);
  EXPECT_EQ(streamed, whole);
  EXPECT_EQ(out.stopped_by, "length");
}

TEST_F(GenerateTest, EndsAtTheContext) {
  TinyDecoder small(spec_of(12), DType::f32, 1, false);
  const auto tokens = static_cast<std::int64_t>(tokenizer.encode("hello 12").size());
  ASSERT_LT(tokens, 12);
  const Generated out = generate(small.context, small.decoder, tokenizer, "hello 12",
                                 {.sampling = {.temperature = 0}, .max_new_tokens = 100});
  EXPECT_EQ(out.stopped_by, "context");
  // The last token needs no place in the context: nothing follows it.
  EXPECT_EQ(static_cast<std::int64_t>(out.tokens.size()), 12 - tokens + 1);
  const std::string message =
      error_of([&] { generate(small.context, small.decoder, tokenizer, "abcdefghijklmnop", {}); });
  EXPECT_NE(message.find("the prompt has 16 tokens; the model's context is 12"), std::string::npos)
      << message;
}

TEST_F(GenerateTest, MaxNewTokens) {
  EXPECT_EQ(run("hello", {.sampling = {.temperature = 0}, .max_new_tokens = 1}).tokens.size(), 1u);
  EXPECT_EQ(kind_of([&] { run("hello", {.max_new_tokens = 0}); }), ErrorKind::usage);
}

TEST_F(GenerateTest, EmptyPromptBeginsWithBosOrEos) {
  EXPECT_NE(error_of([&] { run("", {}); }).find("the prompt is empty"), std::string::npos);
  for (const std::string key : {"bos_token", "eos_token"}) {
    tokenizer = load_document(small_document(), Json::object({{key, "<|end|>"}}));
    const Generated out = run("", {.sampling = {.temperature = 0}, .max_new_tokens = 3});
    EXPECT_EQ(out.prompt_tokens, 1);
    EXPECT_FALSE(out.tokens.empty() && out.stopped_by != "eos");
  }
}

TEST_F(GenerateTest, EndsAtTheEosToken) {
  const std::vector<std::int32_t> free =
      run("hello", {.sampling = {.temperature = 1, .seed = 3}, .max_new_tokens = 12}).tokens;
  // The same sequence, whose sixth token is eos when the vocabulary says so.
  Json document = small_document();
  const std::int32_t eos = free[5];
  const std::size_t first = static_cast<std::size_t>(std::ranges::find(free, eos) - free.begin());
  document["added_tokens"].as_array().push_back(added_token(eos, tokenizer.token(eos), true));
  tokenizer = load_document(document, Json::object({{"eos_token", tokenizer.token(eos)}}));
  const Generated out = run("hello", {.sampling = {.temperature = 1, .seed = 3}, .max_new_tokens = 12});
  EXPECT_EQ(out.stopped_by, "eos");
  EXPECT_EQ(out.tokens,
            (std::vector<std::int32_t>(free.begin(), free.begin() + static_cast<std::ptrdiff_t>(first))));
}

TEST_F(GenerateTest, LeavesNoActivations) {
  const auto use = [&] {
    return tiny.memory.use().current[static_cast<std::size_t>(MemoryTag::activations)];
  };
  const std::size_t before = use();
  run("hello", {.max_new_tokens = 5});
  EXPECT_EQ(use(), before);
}

}  // namespace
}  // namespace lode::test
