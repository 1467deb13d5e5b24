// Sentencepiece-style BPE: byte fallback, normalizers, decoders, and what fine-tuning adds to a tokenizer.
#include <gtest/gtest.h>

#include "lode/error.h"
#include "text/small_tokenizer.h"

namespace lode {
namespace {

using Ids = std::vector<std::int32_t>;

Json typed(const char* type) {
  return Json::object({{"type", type}});
}

Json replace(const char* from, const char* to) {
  return Json::object({{"type", "Replace"}, {"pattern", Json::object({{"String", from}})}, {"content", to}});
}

Json list_of(const char* key, Json::Array parts) {
  return Json::object({{"type", "Sequence"}, {key, Json(std::move(parts))}});
}

// Case B of the format notes: <unk> <s> </s>, the bytes, then characters and merges.
Json llama_document() {
  Json document = small_document();
  Json vocab = Json::object({{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}});
  for (int b = 0; b < 256; b++) {
    const std::string digits = "0123456789ABCDEF";
    vocab[std::string("<0x") + digits[b / 16] + digits[b % 16] + ">"] = b + 3;
  }
  int id = 259;
  for (const char* token : {"▁", "h", "e", "l", "o", "w", "he", "ll", "▁he", "llo", "▁hello", "▁▁"}) {
    vocab[token] = id++;
  }
  Json merges = Json::array();
  for (const char* merge : {"h e", "l l", "▁ he", "ll o", "▁he llo", "▁ ▁"}) merges.push_back(merge);
  document["model"]["vocab"] = std::move(vocab);
  document["model"]["merges"] = std::move(merges);
  document["model"]["byte_fallback"] = true;
  document["model"]["fuse_unk"] = true;
  document["model"]["ignore_merges"] = false;
  document["model"]["unk_token"] = "<unk>";
  document["added_tokens"] = Json(
      Json::Array{added_token(0, "<unk>", true), added_token(1, "<s>", true), added_token(2, "</s>", true)});
  document["normalizer"] =
      list_of("normalizers", {Json::object({{"type", "Prepend"}, {"prepend", "▁"}}), replace(" ", "▁")});
  document["pre_tokenizer"] = nullptr;
  document["decoder"] =
      list_of("decoders", {replace("▁", " "), typed("ByteFallback"), typed("Fuse"),
                           Json::object({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}})});
  return document;
}

Ids bytes(std::initializer_list<int> values) {
  Ids ids;
  for (const int value : values) ids.push_back(value + 3);
  return ids;
}

TEST(CharacterTokenizer, EncodesTheCheckValues) {
  const Tokenizer tokenizer = load_document(llama_document());
  EXPECT_EQ(tokenizer.encode("hello"), Ids{269});
  EXPECT_EQ(tokenizer.encode(" hello"), (Ids{259, 269}));
  EXPECT_EQ(tokenizer.encode("hello  hello"), (Ids{269, 259, 269}));
  EXPECT_EQ(tokenizer.encode("h\u00e9\U0001F600"), (Ids{259, 260, 198, 172, 243, 162, 155, 131}));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
  EXPECT_EQ(tokenizer.encode("w\no"), (Ids{259, 264, 13, 263}));
  const Ids specials = tokenizer.encode("<s>hello</s> hello");
  EXPECT_EQ(specials, (Ids{1, 269, 2, 259, 269}));
  EXPECT_EQ(tokenizer.decode(specials, true), "hello  hello");
  EXPECT_EQ(tokenizer.num_missing_bytes(), 0);
  EXPECT_EQ(tokenizer.token_bytes(269), " hello");
  EXPECT_EQ(tokenizer.token_bytes(3 + 0xF0), "\xF0");
}

TEST(CharacterTokenizer, DecodesByteRuns) {
  const Tokenizer tokenizer = load_document(llama_document());
  Ids ids = bytes({0xF0, 0x9F});
  ids.push_back(260);
  const Ids euro = bytes({0xE2, 0x82, 0xAC});
  ids.insert(ids.end(), euro.begin(), euro.end());
  EXPECT_EQ(tokenizer.decode(ids), "\uFFFD\uFFFDh\u20AC");
  EXPECT_EQ(tokenizer.decode({}), "");
  EXPECT_EQ(tokenizer.decode(Ids{259}), "");
  EXPECT_EQ(tokenizer.decode(Ids{259, 259, 260}), " h");
  EXPECT_EQ(tokenizer.decode(Ids{260, 259}), "h ");
  StreamDecoder stream(tokenizer);
  std::string streamed;
  for (const std::int32_t id : ids) streamed += stream.push(id);
  EXPECT_EQ(streamed, "\uFFFD\uFFFDh");
  EXPECT_EQ(stream.finish(), "\u20AC");
  EXPECT_EQ(stream.push(269), "hello");
  EXPECT_EQ(stream.push(269), " hello");
}

TEST(CharacterTokenizer, MetaspaceFirst) {
  Json document = llama_document();
  document["normalizer"] = nullptr;
  document["pre_tokenizer"] = Json::object(
      {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", false}});
  document["decoder"] =
      Json::object({{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}});
  const Tokenizer tokenizer = load_document(document);
  EXPECT_EQ(tokenizer.encode("hello<s>hello"), (Ids{269, 1, 265, 268}));
  EXPECT_EQ(tokenizer.encode("<s>hello"), (Ids{1, 265, 268}));
  EXPECT_EQ(tokenizer.encode(" hello"), Ids{269});
  EXPECT_EQ(tokenizer.decode(Ids{269, 269}), "hello hello");
  EXPECT_EQ(tokenizer.decode(Ids{1, 269}, true), "hello");
}

TEST(CharacterTokenizer, UnknownCharacters) {
  Json document = llama_document();
  document["model"]["byte_fallback"] = false;
  EXPECT_EQ(load_document(document).encode("hxyhx"), (Ids{259, 260, 0, 260, 0}));
  document["model"]["fuse_unk"] = false;
  EXPECT_EQ(load_document(document).encode("hxyhx"), (Ids{259, 260, 0, 0, 260, 0}));
  document["model"]["unk_token"] = nullptr;
  EXPECT_EQ(load_document(document).encode("hxyhx"), (Ids{259, 260, 260}));
  EXPECT_GT(load_document(document).num_missing_bytes(), 100);
}

TEST(CharacterTokenizer, NullDecoderJoinsWithSpaces) {
  Json document = llama_document();
  document["decoder"] = nullptr;
  const Tokenizer tokenizer = load_document(document);
  EXPECT_EQ(tokenizer.decode(Ids{269, 1, 260}), "▁hello <s> h");
  EXPECT_EQ(tokenizer.decode(Ids{269, 1, 260}, true), "▁hello h");
}

TEST(CharacterTokenizer, Normalizers) {
  const auto ids_of = [](Json normalizer, std::string_view text) {
    Json document = small_document();
    document["normalizer"] = std::move(normalizer);
    const Tokenizer tokenizer = load_document(document);
    return tokenizer.decode(tokenizer.encode(text));
  };
  EXPECT_EQ(ids_of(typed("NFKC"), "\uFB01\u00BDx\u0301"), "fi1\u20442x\u0301");
  EXPECT_EQ(ids_of(typed("NFD"), "\u00e9\uFB01"), "e\u0301\uFB01");
  EXPECT_EQ(ids_of(typed("NFKD"), "\u00e9\uFB01"), "e\u0301fi");
  EXPECT_EQ(ids_of(typed("Lowercase"), "ABc\u00C9\u0130\u03A3"), "abc\u00e9i\u0307\u03c3");
  EXPECT_EQ(ids_of(typed("StripAccents"), "e\u0301a"), "ea");
  // Marks since Unicode 10, which the reference does not know as such, and two that no longer are.
  EXPECT_EQ(ids_of(typed("StripAccents"), "a\u0AFAb\u1ACEc\u1CF2d\u20DDe"), "a\u0AFAb\u1ACEcde");
  EXPECT_EQ(ids_of(list_of("normalizers", {typed("NFD"), typed("StripAccents")}), "\u00e9"), "e");
  EXPECT_EQ(ids_of(typed("Strip"), " \u3000a b\n"), "a b");
  EXPECT_EQ(ids_of(replace("aa", "b"), "aaaaa"), "bba");
  Json expression = replace("x", "<$0>");
  expression["pattern"] = Json::object({{"Regex", "a+"}});
  EXPECT_EQ(ids_of(expression, "caab\u00e9a"), "c<$0>b\u00e9<$0>");
  EXPECT_EQ(ids_of(typed("ByteLevel"), "a b\u00e9"), "a\u0120b\u00C3\u00A9");
}

TEST(CharacterTokenizer, LongTextsTakeLinearTime) {
  Json document = llama_document();
  const Tokenizer tokenizer = load_document(document);
  const std::size_t size = 2 << 20;
  EXPECT_EQ(tokenizer.encode(std::string(size, 'l')).size(), size / 2 + 1);
  EXPECT_EQ(tokenizer.encode(std::string(size, ' ')).size(), size / 2 + 1);
  EXPECT_EQ(tokenizer.encode(std::string(size, 'x')).size(), size + 1);
  std::string words;
  while (words.size() < size) words += " hello";
  const Ids ids = tokenizer.encode(words);
  EXPECT_EQ(ids.size(), words.size() / 6 + 1);
  EXPECT_EQ(tokenizer.decode(ids), words);
}

// Words are cut before a word mark only where no token continues over it.
TEST(CharacterTokenizer, MergesAcrossWordMarks) {
  Json document = llama_document();
  document["model"]["vocab"]["o▁"] = 271;
  document["model"]["vocab"]["o▁w"] = 272;
  for (const char* merge : {"o ▁", "o▁ w"}) document["model"]["merges"].push_back(merge);
  const Tokenizer tokenizer = load_document(document);
  EXPECT_EQ(tokenizer.encode("w w"), (Ids{259, 264, 259, 264}));
  EXPECT_EQ(tokenizer.encode("wo wo w"), (Ids{259, 264, 272, 272}));
  document["model"]["vocab"]["<0x0A>▁"] = 273;
  document["model"]["merges"].push_back("<0x0A> ▁");
  EXPECT_EQ(load_document(document).encode("w\n w"), (Ids{259, 264, 273, 264}));
}

TEST(CharacterTokenizer, RobertaPostProcessor) {
  Json document = llama_document();
  Json& processor = document["post_processor"];
  processor = typed("RobertaProcessing");
  processor["sep"] = Json(Json::Array{Json("</s>"), Json(2)});
  processor["cls"] = Json(Json::Array{Json("<s>"), Json(1)});
  const Tokenizer tokenizer = load_document(document);
  EXPECT_EQ(tokenizer.encode("hello", {.add_special_tokens = true}), (Ids{1, 269, 2}));
}

TEST(CharacterTokenizer, FingerprintSeesDecodedAndNormalised) {
  const std::string base = load_document(llama_document()).fingerprint();
  std::vector<Json> different(3, llama_document());
  different[0]["model"]["byte_fallback"] = false;
  different[1]["normalizer"] = replace(" ", "▁");
  different[2]["pre_tokenizer"] = Json::object({{"type", "Metaspace"}, {"replacement", "▁"}});
  for (const Json& other : different) EXPECT_NE(load_document(other).fingerprint(), base);
}

TEST(ExtendedTokenizer, AddsTokens) {
  const Tokenizer base = load_document(small_document());
  const Tokenizer more = base.add_tokens({"<think>", "hel", "<x>"}).add_special_tokens({"<|im|>", "<x>"});
  EXPECT_EQ(more.vocab_size(), 273);
  EXPECT_EQ(more.token_id("<think>"), 271);
  EXPECT_EQ(more.token_id("<|im|>"), 272);
  EXPECT_EQ(more.token_id("hel"), 268);
  EXPECT_FALSE(more.is_special(271));
  EXPECT_TRUE(more.is_special(272));
  EXPECT_TRUE(more.is_special(270));
  EXPECT_FALSE(base.is_special(270));
  EXPECT_EQ(more.encode("<think>hello<|im|>"), (Ids{271, 259, 272}));
  EXPECT_EQ(more.find_special("<think> and <|im|> and <x>"), "<|im|>") << "<think> is not special";
  EXPECT_EQ(more.find_special("a<x><|im|>"), "<x>");
  for (const char* none : {"", "<|im", "< |im|>", "<think>", "plain"}) EXPECT_EQ(more.find_special(none), "");
  EXPECT_NE(more.fingerprint(), base.fingerprint());
  EXPECT_THROW(base.add_tokens({""}), Error);
  const TempFolder folder;
  more.save(real_files(), folder.path());
  EXPECT_EQ(Tokenizer::load(real_files(), folder.path()).fingerprint(), more.fingerprint());
}

TEST(ExtendedTokenizer, KeepsNamedTokensAndTemplates) {
  const TempFolder folder;
  const auto write = [&](const char* name, std::string_view text) {
    write_file_atomically(real_files(), folder / name, text);
  };
  write("tokenizer.json", small_document().dump());
  write("tokenizer_config.json",
        R"({"eos_token": "<|end|>", "add_bos_token": false, "unknown": {"a": 1}, "chat_template": "old",
            "extra_special_tokens": {"image_token": "<x>"}, "additional_special_tokens": ["<x>", "<|end|>"]})");
  write("special_tokens_map.json", R"({"pad_token": {"content": "<x>"}, "eos_token": "<x>"})");
  write("chat_template.jinja", "new");
  write("generation_config.json", R"({"eos_token_id": [270, 269, 9999]})");
  const Tokenizer tokenizer = Tokenizer::load(real_files(), folder.path());
  using Names = std::map<std::string, std::string>;
  EXPECT_EQ(tokenizer.named_tokens(),
            (Names{{"eos_token", "<|end|>"}, {"pad_token", "<x>"}, {"image_token", "<x>"}}));
  EXPECT_EQ(tokenizer.additional_special_tokens(), (std::vector<std::string>{"<x>", "<|end|>"}));
  EXPECT_EQ(tokenizer.pad_id(), 270);
  EXPECT_EQ(tokenizer.stop_ids(), (Ids{269, 270}));
  EXPECT_EQ(tokenizer.chat_template(), "new");
  EXPECT_EQ(tokenizer.chat_template("tool_use"), std::nullopt);
  tokenizer.with_chat_template("mine").save(real_files(), folder / "out");
  EXPECT_EQ(real_files().read(folder / "out/chat_template.jinja"), "mine");
  const Json config = parse_json(real_files().read(folder / "out/tokenizer_config.json"), "config");
  EXPECT_EQ(config.at("unknown").at("a").as_int(), 1);
  const Tokenizer again = Tokenizer::load(real_files(), folder / "out");
  EXPECT_EQ(again.named_tokens(), tokenizer.named_tokens());
  EXPECT_EQ(again.chat_template(), "mine");
}

TEST(ExtendedTokenizer, ReadsTemplateLists) {
  const Json config = Json::object(
      {{"chat_template", Json(Json::Array{Json::object({{"name", "tool_use"}, {"template", "t"}}),
                                          Json::object({{"name", "default"}, {"template", "d"}})})}});
  const Tokenizer tokenizer = load_document(small_document(), config);
  EXPECT_EQ(tokenizer.chat_templates(), (ChatTemplates{{"default", "d"}, {"tool_use", "t"}}));
  const TempFolder folder;
  tokenizer.save(real_files(), folder.path());
  EXPECT_EQ(Tokenizer::load(real_files(), folder.path()).chat_templates(), tokenizer.chat_templates());
  EXPECT_EQ(load_document(small_document(), Json::object({{"chat_template", "one"}})).chat_template(), "one");
  EXPECT_EQ(load_document(small_document()).chat_template(), std::nullopt);
  EXPECT_THROW(load_document(small_document(), Json::object({{"chat_template", 3}})), Error);
}

}  // namespace
}  // namespace lode
