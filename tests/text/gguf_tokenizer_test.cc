#include "text/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include "lode/error.h"
#include "text/small_tokenizer.h"

namespace lode {
namespace {

using Ids = std::vector<std::int32_t>;

GgufTokenizerData byte_level_data() {
  GgufTokenizerData data;
  data.model = "gpt2";
  data.pre = "llama-bpe";
  for (int b = 0; b < 256; b++) {
    const char byte = static_cast<char>(b);
    data.tokens.push_back(text::bytes_to_alphabet(std::string_view(&byte, 1)));
  }
  for (const char* token : {"he", "ll", "hell", "hello", "<|end|>", "<x>", "[PAD262]"}) {
    data.tokens.emplace_back(token);
  }
  data.merges = {"h e", "l l", "he ll", "hell o"};
  data.token_types.assign(data.tokens.size(), 1);
  data.token_types[260] = 3;
  data.token_types[261] = 4;
  data.token_types[262] = 5;
  data.bos = data.eos = 260;
  return data;
}

// <unk> <s> </s>, the bytes, then scored pieces.
GgufTokenizerData sentencepiece_data() {
  GgufTokenizerData data;
  data.model = "llama";
  const auto add = [&](std::string token, float score, int type) {
    data.tokens.push_back(std::move(token));
    data.scores.push_back(score);
    data.token_types.push_back(type);
  };
  add("<unk>", 0, 2), add("<s>", 0, 3), add("</s>", 0, 3);
  for (int b = 0; b < 256; b++) {
    const std::string digits = "0123456789ABCDEF";
    add(std::string("<0x") + digits[b / 16] + digits[b % 16] + ">", 0, 6);
  }
  float score = 0;
  for (const char* token : {"he", "ll", "▁he", "llo", "▁hello", "▁▁"}) add(token, score--, 1);
  for (const char* token : {"▁", "h", "e", "l", "o", "w"}) add(token, score--, 1);
  add("<turn>", -1000, 4);
  data.unk = 0, data.bos = 1, data.eos = 2, data.eot = 271;
  data.chat_templates = {{"default", "text"}};
  return data;
}

std::string load_error(const GgufTokenizerData& data) {
  try {
    tokenizer_from_gguf(data, "model.gguf");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    return error.what();
  }
  return "no error";
}

TEST(GgufTokenizer, ByteLevel) {
  const Tokenizer tokenizer = tokenizer_from_gguf(byte_level_data(), "model.gguf");
  EXPECT_EQ(tokenizer.encode("hello<|end|>hell<x>"), (Ids{259, 260, 258, 261}));
  EXPECT_EQ(tokenizer.encode("he", {.add_special_tokens = true}), (Ids{260, 256}));
  EXPECT_TRUE(tokenizer.is_special(260));
  EXPECT_FALSE(tokenizer.is_special(261));
  EXPECT_EQ(tokenizer.eos_id(), 260);
  GgufTokenizerData data = byte_level_data();
  data.add_bos = false;
  EXPECT_EQ(tokenizer_from_gguf(data, "model.gguf").encode("he", {.add_special_tokens = true}), Ids{256});
}

TEST(GgufTokenizer, EveryPreTokenizerBuildsAndIsFoundAgain) {
  const std::string text = "Hello  world's 12345 CAN'T\n\n  foo_bar 你好！é😀\t x ";
  for (const std::string_view pre : gguf_pre_names()) {
    GgufTokenizerData data = byte_level_data();
    data.pre = pre;
    const Tokenizer tokenizer = tokenizer_from_gguf(data, "model.gguf");
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << pre;
    const GgufTokenizerData again = gguf_tokenizer_data(tokenizer);
    EXPECT_EQ(tokenizer_from_gguf(again, "again").fingerprint(), tokenizer.fingerprint()) << pre;
    EXPECT_TRUE(again.huggingface_json.empty()) << pre;
    EXPECT_EQ(again.tokens, data.tokens);
    EXPECT_EQ(again.merges, data.merges);
  }
}

TEST(GgufTokenizer, Sentencepiece) {
  const Tokenizer tokenizer = tokenizer_from_gguf(sentencepiece_data(), "model.gguf");
  EXPECT_EQ(tokenizer.token(263), "▁hello");
  EXPECT_EQ(tokenizer.encode("hello"), Ids{263});
  EXPECT_EQ(tokenizer.encode(" hello<turn>w\n", {.add_special_tokens = true}),
            (Ids{1, 265, 263, 271, 265, 270, 13}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("hello  w\u00e9")), "hello  w\u00e9");
  EXPECT_EQ(tokenizer.stop_ids(), (Ids{2, 271}));
  EXPECT_EQ(tokenizer.chat_template(), "text");
  GgufTokenizerData data = sentencepiece_data();
  data.add_space_prefix = false;
  const Tokenizer bare = tokenizer_from_gguf(data, "model.gguf");
  EXPECT_EQ(bare.encode("hello hello"), (Ids{259, 262, 263}));
  EXPECT_EQ(bare.decode(Ids{263}), " hello");
}

TEST(GgufTokenizer, SavesAsTokenizerJson) {
  for (const auto& data : {byte_level_data(), sentencepiece_data()}) {
    const Tokenizer tokenizer = tokenizer_from_gguf(data, "model.gguf");
    const TempFolder folder;
    tokenizer.save(real_files(), folder.path());
    const Tokenizer again = Tokenizer::load(real_files(), folder.path());
    EXPECT_EQ(again.fingerprint(), tokenizer.fingerprint());
    EXPECT_EQ(again.stop_ids(), tokenizer.stop_ids());
    EXPECT_EQ(again.chat_templates(), tokenizer.chat_templates());
    const GgufTokenizerData exported = gguf_tokenizer_data(again);
    EXPECT_EQ(exported.tokens, data.tokens);
    EXPECT_EQ(exported.token_types, data.token_types);
    EXPECT_EQ(exported.eot, data.eot);
    EXPECT_TRUE(exported.huggingface_json.empty());
  }
}

TEST(GgufTokenizer, ThroughAFile) {
  const TempFolder folder;
  for (const auto& data : {byte_level_data(), sentencepiece_data()}) {
    GgufFields fields = {{"general.architecture", std::string("llama")}};
    add_gguf_tokenizer(data, fields);
    GgufWriter(real_files(), folder / "m.gguf", fields, {}).finish();
    const Tokenizer tokenizer = tokenizer_from_gguf(GgufFile(real_files(), folder / "m.gguf"));
    GgufTokenizerData used = data;
    remove_gguf_padding(used);
    EXPECT_EQ(tokenizer.fingerprint(), tokenizer_from_gguf(used, "model.gguf").fingerprint());
    EXPECT_EQ(tokenizer.chat_templates(), data.chat_templates);
  }
}

TEST(GgufTokenizer, OneTokenARow) {
  for (GgufTokenizerData data : {byte_level_data(), sentencepiece_data()}) {
    remove_gguf_padding(data);
    const std::size_t tokens = data.tokens.size();
    pad_gguf_tokens(data, 300);
    EXPECT_EQ(data.tokens.size(), 300u);
    EXPECT_EQ(data.token_types.size(), 300u);
    EXPECT_EQ(data.tokens.back(), "[PAD299]");
    EXPECT_EQ(data.token_types.back(), 5);
    EXPECT_EQ(data.scores.size(), data.model == "llama" ? 300u : 0u);
    pad_gguf_tokens(data, 10);
    EXPECT_EQ(data.tokens.size(), 300u) << "never fewer";
    remove_gguf_padding(data);
    EXPECT_EQ(data.tokens.size(), tokens);
    // Other unused tokens stay.
    data.tokens.emplace_back("[PAD1]");
    data.token_types.push_back(5);
    remove_gguf_padding(data);
    EXPECT_EQ(data.tokens.size(), tokens + 1);
  }
}

TEST(GgufTokenizer, CarriesTheWholeFileWhenTheListsAreNotEnough) {
  Json document = small_document();  // its ignore_merges has no name with NFC
  document["normalizer"] = Json::object({{"type", "NFC"}});
  const Tokenizer tokenizer = load_document(document);
  const GgufTokenizerData data = gguf_tokenizer_data(tokenizer);
  EXPECT_EQ(data.pre, "llama-bpe");
  EXPECT_FALSE(data.huggingface_json.empty());
  EXPECT_EQ(tokenizer_from_gguf(data, "model.gguf").fingerprint(), tokenizer.fingerprint());
}

TEST(GgufTokenizer, RefusesWhatGgufCannotSay) {
  Json document = small_document();
  document["pre_tokenizer"] = sequence({split("x+"), byte_level(false, false)});
  EXPECT_THROW(gguf_tokenizer_data(load_document(document)), Error);
  document = small_document();
  document["normalizer"] = Json::object({{"type", "Lowercase"}});
  EXPECT_THROW(gguf_tokenizer_data(load_document(document)), Error);
}

TEST(GgufTokenizer, DamagedLists) {
  const auto expect = [](const GgufTokenizerData& data, std::string_view part) {
    const std::string message = load_error(data);
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("model.gguf"), std::string::npos) << message;
  };
  GgufTokenizerData data = byte_level_data();
  data.model = "bert";
  expect(data, "tokenizer.ggml.model: \"bert\" is not supported (known: gpt2, llama)");
  data = byte_level_data();
  data.pre = "mine";
  expect(data, "tokenizer.ggml.pre: \"mine\" is not known (known: llama-bpe,");
  data = byte_level_data();
  data.tokens.clear();
  expect(data, "tokenizer.ggml.tokens: there are none");
  data = byte_level_data();
  data.tokens[3] = data.tokens[4];
  expect(data, "appears twice");
  data = byte_level_data();
  data.token_types.pop_back();
  expect(data, "tokenizer.ggml.token_type: has 262 entries for 263 tokens");
  for (const char* merge : {"", " ", "he", "he  ll", "zz h"}) {
    data = byte_level_data();
    data.merges.emplace_back(merge);
    expect(data, "tokenizer.ggml.merges: [4] must be two tokens");
  }
  data = byte_level_data();
  data.merges.emplace_back("o h");
  expect(data, "which is not in model.vocab");
  data = byte_level_data();
  data.eos = 263;
  expect(data, "tokenizer.ggml.eos_token_id: 263 is not an id");
  data = sentencepiece_data();
  data.scores.clear();
  expect(data, "tokenizer.ggml.scores: are missing");
  data = sentencepiece_data();
  data.tokens[9] = "\xFF";
  expect(data, "[9] is not UTF-8");
  data.huggingface_json = "{";
  expect(data, "tokenizer.huggingface.json");
}

}  // namespace
}  // namespace lode
