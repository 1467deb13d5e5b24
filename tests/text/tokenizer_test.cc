#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "lode/error.h"
#include "text/small_tokenizer.h"

namespace lode {
namespace {

using Ids = std::vector<std::int32_t>;

TEST(Tokenizer, EncodesTheCheckValues) {
  const Tokenizer tokenizer = load_document(small_document());
  EXPECT_EQ(tokenizer.encode("hello world"), (Ids{259, 264}));
  EXPECT_EQ(tokenizer.encode("hello  worldhello"), (Ids{259, 32, 264, 259}));
  EXPECT_EQ(tokenizer.encode("h\u00e9llo"), (Ids{104, 195, 169, 257, 111}));
  const Ids mixed = tokenizer.encode("hello<|end|> world <x>hello");
  EXPECT_EQ(mixed, (Ids{259, 269, 264, 32, 270, 259}));
  EXPECT_EQ(tokenizer.decode(mixed, true), "hello world <x>hello");
  EXPECT_EQ(tokenizer.decode(mixed), "hello<|end|> world <x>hello");
  EXPECT_EQ(tokenizer.encode("1234"), (Ids{267, 52}));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
  EXPECT_EQ(tokenizer.encode("h"), Ids{104});
  EXPECT_EQ(tokenizer.vocab_size(), 271);
  EXPECT_EQ(tokenizer.num_merges(), 12);
  EXPECT_EQ(tokenizer.num_missing_bytes(), 0);
}

TEST(Tokenizer, IgnoreMergesTakesWholeWords) {
  Json document = small_document();
  EXPECT_EQ(load_document(document).encode("hel"), Ids{268});
  document["model"]["ignore_merges"] = false;
  EXPECT_EQ(load_document(document).encode("hel"), (Ids{256, 108}));
}

TEST(Tokenizer, SpecialTextCanStayText) {
  const Tokenizer tokenizer = load_document(small_document());
  const Ids ids = tokenizer.encode("<|end|><x>", {.parse_special = false});
  EXPECT_EQ(ids, (Ids{'<', '|', 'e', 'n', 'd', '|', '>', 270}));
}

TEST(Tokenizer, DecodesLossily) {
  const Tokenizer tokenizer = load_document(small_document());
  EXPECT_EQ(tokenizer.decode(Ids{195}), "\uFFFD");
  EXPECT_EQ(tokenizer.decode(Ids{195, 169, 269, 104}), "\u00e9<|end|>h");
  EXPECT_EQ(tokenizer.decode(Ids{104, -1, 271, 1 << 30, 101}), "he");
  EXPECT_EQ(tokenizer.decode({}), "");
}

TEST(Tokenizer, RepairsInvalidUtf8) {
  const Tokenizer tokenizer = load_document(small_document());
  const auto round_trip = [&](std::string_view bytes) { return tokenizer.decode(tokenizer.encode(bytes)); };
  EXPECT_EQ(round_trip("a\xFF"), "a\uFFFD");
  EXPECT_EQ(round_trip("\xE4\xBD"), "\uFFFD");
  EXPECT_EQ(round_trip("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(round_trip(std::string_view("\0h", 2)), std::string_view("\0h", 2));
}

TEST(Tokenizer, LooksUpTokens) {
  const Tokenizer tokenizer = load_document(small_document());
  EXPECT_EQ(tokenizer.token_id("Ġworld"), 264);
  EXPECT_EQ(tokenizer.token_id("<|end|>"), 269);
  EXPECT_EQ(tokenizer.token_id(" world"), std::nullopt);
  EXPECT_EQ(tokenizer.token(264), "Ġworld");
  EXPECT_EQ(tokenizer.token_bytes(264), " world");
  EXPECT_EQ(tokenizer.token_bytes(271), "");
  EXPECT_TRUE(tokenizer.is_special(269));
  EXPECT_FALSE(tokenizer.is_special(270));
  EXPECT_THROW(tokenizer.token(271), Error);
}

TEST(Tokenizer, ReadsNamedTokens) {
  Json config = Json::object({{"eos_token", "<|end|>"}, {"bos_token", Json::object({{"content", "<x>"}})}});
  const Tokenizer tokenizer = load_document(small_document(), config);
  EXPECT_EQ(tokenizer.eos_id(), 269);
  EXPECT_EQ(tokenizer.bos_id(), 270);
  EXPECT_EQ(tokenizer.pad_id(), std::nullopt);
  EXPECT_EQ(load_document(small_document()).eos_id(), std::nullopt);
}

TEST(Tokenizer, AppliesTheTemplate) {
  Json document = small_document();
  Json single(Json::Array{Json::object({{"SpecialToken", Json::object({{"id", "<|end|>"}, {"type_id", 0}})}}),
                          Json::object({{"Sequence", Json::object({{"id", "A"}, {"type_id", 0}})}}),
                          Json::object({{"SpecialToken", Json::object({{"id", "<x>"}, {"type_id", 0}})}})});
  const auto entry = [](int id, const char* token) {
    return Json::object(
        {{"id", token}, {"ids", Json(Json::Array{Json(id)})}, {"tokens", Json(Json::Array{Json(token)})}});
  };
  Json specials = Json::object({{"<|end|>", entry(269, "<|end|>")}, {"<x>", entry(270, "<x>")}});
  Json processor = Json::object({{"type", "TemplateProcessing"},
                                 {"single", std::move(single)},
                                 {"pair", Json::array()},
                                 {"special_tokens", std::move(specials)}});
  document["post_processor"] =
      Json::object({{"type", "Sequence"},
                    {"processors", Json(Json::Array{byte_level(true, false), std::move(processor)})}});
  const Tokenizer tokenizer = load_document(document);
  EXPECT_EQ(tokenizer.encode("hello", {.add_special_tokens = true}), (Ids{269, 259, 270}));
  EXPECT_EQ(tokenizer.encode("", {.add_special_tokens = true}), (Ids{269, 270}));
  EXPECT_EQ(tokenizer.encode("hello"), Ids{259});
  EXPECT_NE(tokenizer.fingerprint(), load_document(small_document()).fingerprint());
}

// The rules of added tokens on the bytes' ids: <a>, <a>b, <b> (strips both sides), cat (single word), <S>,
// <L> (left).
TEST(Tokenizer, MatchesAddedTokens) {
  Json document = small_document();
  Json& added = document["added_tokens"];
  const auto add = [&](const char* content, bool special, std::vector<const char*> flags) {
    Json token = added_token(269 + static_cast<int>(added.size()), content, special);
    for (const char* flag : flags) token[flag] = true;
    added.push_back(std::move(token));
  };
  add("<a>", false, {});
  add("<a>b", false, {});
  add("<b>", false, {"lstrip", "rstrip"});
  add("cat", false, {"single_word"});
  add("<S>", true, {});
  add("<L>", false, {"lstrip"});
  const Tokenizer tokenizer = load_document(document);
  const int a_b = 272, b = 273, cat = 274, s = 275, l = 276;
  EXPECT_EQ(tokenizer.encode("x<a>by"), (Ids{'x', a_b, 'y'}));
  EXPECT_EQ(tokenizer.encode("x <b>  y <L> y"), (Ids{'x', b, 'y', l, ' ', 'y'}));
  EXPECT_EQ(tokenizer.encode("concat cat cats cat_ cat"),
            (Ids{'c', 'o', 'n', 'c', 'a', 't', ' ', cat, ' ', 'c',
                 'a', 't', 's', ' ', 'c', 'a', 't', '_', ' ', cat}));
  EXPECT_EQ(tokenizer.encode("<s><S>"), (Ids{'<', 's', '>', s}));
  EXPECT_EQ(tokenizer.encode("  <b>"), Ids{b});
  EXPECT_EQ(tokenizer.encode("\u00e9cat"), (Ids{195, 169, 'c', 'a', 't'}));
  EXPECT_EQ(tokenizer.encode("cat"), Ids{cat});
}

TEST(Tokenizer, NormalisesBeforeNormalizedTokens) {
  Json document = small_document();
  document["normalizer"] = Json::object({{"type", "NFC"}});
  document["added_tokens"].push_back(added_token(271, "e\u0301", false, true));
  const Tokenizer tokenizer = load_document(document);
  EXPECT_EQ(tokenizer.encode("h\u00e9"), (Ids{'h', 271}));
  EXPECT_EQ(tokenizer.encode("he\u0301"), (Ids{'h', 271}));
  EXPECT_EQ(tokenizer.encode("a\u0301"), (Ids{195, 161}));
}

TEST(Tokenizer, StreamsCompleteCharacters) {
  const Tokenizer tokenizer = load_document(small_document());
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.push(195), "");
  EXPECT_EQ(stream.push(169), "\u00e9");
  EXPECT_EQ(stream.push(0xF0), "");
  EXPECT_EQ(stream.push(0x9F), "");
  EXPECT_EQ(stream.push('h'), "\uFFFDh");
  EXPECT_EQ(stream.push(0xFF), "\uFFFD");
  EXPECT_EQ(stream.push(0xE4), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.finish(), "");
  StreamDecoder skipping(tokenizer, true);
  EXPECT_EQ(skipping.push(269), "");
  EXPECT_EQ(skipping.push(259), "hello");

  Ids bytes;
  for (int i = 0; i < 2000; i++) bytes.push_back((i * 7919 + i / 3) % 256);
  StreamDecoder all(tokenizer);
  std::string text;
  for (const std::int32_t id : bytes) text += all.push(id);
  EXPECT_EQ(text + all.finish(), tokenizer.decode(bytes));
}

TEST(Tokenizer, SavesWhatItLoaded) {
  const Json config = Json::object({{"eos_token", "<|end|>"}, {"chat_template", "{{ x }}"}});
  const Tokenizer tokenizer = load_document(small_document(), config);
  const TempFolder folder;
  tokenizer.save(real_files(), folder / "out", 512);
  const Tokenizer again = Tokenizer::load(real_files(), folder / "out/tokenizer.json");
  EXPECT_EQ(again.fingerprint(), tokenizer.fingerprint());
  EXPECT_EQ(again.encode("hello<|end|> world"), tokenizer.encode("hello<|end|> world"));
  EXPECT_EQ(parse_json(real_files().read(folder / "out/tokenizer.json"), "out"), small_document());
  const Json written = parse_json(real_files().read(folder / "out/tokenizer_config.json"), "out");
  EXPECT_EQ(written.at("tokenizer_class"), Json("PreTrainedTokenizerFast"));
  EXPECT_EQ(written.at("chat_template"), Json("{{ x }}"));
  EXPECT_EQ(written.at("model_max_length"), Json(512));
}

TEST(Tokenizer, ReadsMergesInBothSpellings) {
  Json document = small_document();
  for (Json& merge : document["model"]["merges"].as_array()) {
    const std::string text = merge.as_array()[0].as_string() + " " + merge.as_array()[1].as_string();
    merge = text;
  }
  EXPECT_EQ(load_document(document).fingerprint(), load_document(small_document()).fingerprint());
}

TEST(Tokenizer, FingerprintSeesWhatAffectsIds) {
  const std::string base = load_document(small_document()).fingerprint();
  EXPECT_EQ(base.size(), 16u);
  Json document = small_document();
  document["version"] = "2.0";
  std::ranges::reverse(document["model"]["vocab"].as_object());
  EXPECT_EQ(load_document(document).fingerprint(), base);
  std::vector<Json> different(5, small_document());
  different[0]["model"]["ignore_merges"] = false;
  different[1]["normalizer"] = Json::object({{"type", "NFC"}});
  different[2]["pre_tokenizer"] = byte_level(false, true);
  different[3]["added_tokens"].as_array()[1]["rstrip"] = true;
  std::swap(different[4]["model"]["merges"].as_array()[0], different[4]["model"]["merges"].as_array()[1]);
  for (const Json& other : different) EXPECT_NE(load_document(other).fingerprint(), base);
}

TEST(Tokenizer, MissingBytesAreUnknownOrDropped) {
  Json document = small_document();
  auto& vocab = document["model"]["vocab"].as_object();
  std::erase_if(vocab, [](const Json::Member& member) { return member.first == "z"; });
  document["model"]["vocab"]["<unk>"] = static_cast<int>('z');
  EXPECT_EQ(load_document(document).num_missing_bytes(), 1);
  EXPECT_EQ(load_document(document).encode("azza"), (Ids{'a', 'a'}));
  document["model"]["unk_token"] = "<unk>";
  EXPECT_EQ(load_document(document).encode("azza"), (Ids{'a', 'z', 'z', 'a'}));
  document["model"]["fuse_unk"] = true;
  EXPECT_EQ(load_document(document).encode("azza"), (Ids{'a', 'z', 'a'}));
}

// Long pre-tokens and long runs: each of these is a megabyte, and quadratic work would not end.
TEST(Tokenizer, HostileTextTakesLinearTime) {
  Json document = small_document();
  document["model"]["vocab"]["aa"] = 269;
  document["model"]["vocab"]["aaaa"] = 270;
  document["model"]["merges"].push_back(Json(Json::Array{Json("a"), Json("a")}));
  document["model"]["merges"].push_back(Json(Json::Array{Json("aa"), Json("aa")}));
  document["added_tokens"] = Json::array();
  document["normalizer"] = Json::object({{"type", "NFC"}});
  constexpr std::size_t kSize = 1 << 20;
  const auto repeat = [](std::string_view unit) {
    std::string out;
    while (out.size() < kSize) out += unit;
    return out;
  };
  for (const bool gpt2 : {true, false}) {
    if (gpt2) document["pre_tokenizer"] = byte_level(false, true);
    const Tokenizer tokenizer = load_document(document);
    EXPECT_EQ(tokenizer.encode(repeat("a")), Ids(kSize / 4, 270));
    EXPECT_EQ(tokenizer.encode(repeat(" ")), Ids(kSize / 2, 265));
    EXPECT_EQ(tokenizer.encode(repeat("\n")), Ids(kSize, '\n'));
    for (const char* unit : {" \n", "a\u0300\u0316", "\u0300\u0316", "\u3000", "'", "\U0001F469\u200D",
                             "\u00e9", "A", "1", "\r\n\t", "\u1100\u1161", "\xE2", "a "}) {
      const std::string text = repeat(unit);
      EXPECT_GE(tokenizer.encode(text).size(), text.size() / 8) << unit;
    }
    std::string spaces = repeat(" ") + "x";
    EXPECT_EQ(tokenizer.encode(spaces).size(), kSize / 2 + 2);
  }
}

TEST(Tokenizer, EncodesFromManyThreads) {
  const Tokenizer tokenizer = load_document(small_document());
  std::vector<std::string> texts;
  for (int i = 0; i < 200; i++)
    texts.push_back("hello " + std::to_string(i * 12345) + " world<|end|> \u00e9");
  std::vector<Ids> expected, found(texts.size());
  for (const std::string& text : texts) expected.push_back(tokenizer.encode(text));
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; t++) {
    threads.emplace_back([&, t] {
      for (std::size_t i = t; i < texts.size(); i += 4) found[i] = tokenizer.encode(texts[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace lode
