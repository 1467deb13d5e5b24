#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include "lode/error.h"
#include "text/small_tokenizer.h"

namespace lode::text {
namespace {

const std::string kText1 = "Hello  world's 12345 CAN'T\n\n  foo_bar 你好！é😀\t x ";
const std::string kText2 = "I'm  DON'T\r\n \n3.14  HTTPServer-2";
const std::string kText3 = "  a\n b";

constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Pieces joined by "|".
std::string pieces(const Json& config, std::string_view text) {
  const PreTokenizer pre_tokenizer(config, "test");
  RegexScratch scratch;
  std::string out;
  pre_tokenizer.run(text, true, scratch,
                    [&](std::string_view word) { out.append(out.empty() ? "" : "|").append(word); });
  return out;
}

TEST(PreTokenizer, ByteLevel) {
  const Json config = byte_level(false, true);
  EXPECT_EQ(pieces(config, kText1),
            "Hello| | world|'s| 12345| CAN|'|T|\n\n | foo|_|bar| 你好|！|é|😀|\t| x| ");
  EXPECT_EQ(pieces(config, kText2), "I|'m| | DON|'|T|\r\n |\n|3|.|14| | HTTPServer|-|2");
  EXPECT_EQ(pieces(config, kText3), " | a|\n| b");
  EXPECT_EQ(pieces(config, ""), "");
}

TEST(PreTokenizer, ByteLevelWithPrefixSpace) {
  const Json config = byte_level(true, true);
  EXPECT_EQ(pieces(config, kText2), " I|'m| | DON|'|T|\r\n |\n|3|.|14| | HTTPServer|-|2");
  EXPECT_EQ(pieces(config, kText3), " | a|\n| b");
  EXPECT_EQ(pieces(config, "\U0001FAE9x"), " \U0001FAE9|x");
  EXPECT_EQ(pieces(config, ""), "");
}

TEST(PreTokenizer, Llama3) {
  const Json config = sequence({split(kLlama3Expression), byte_level(false, false)});
  EXPECT_EQ(pieces(config, kText1),
            "Hello| | world|'s| |123|45| CAN|'T|\n\n| | foo|_bar| 你好|！é|😀|\t| x| ");
  EXPECT_EQ(pieces(config, kText2), "I|'m| | DON|'T|\r\n \n|3|.|14| | HTTPServer|-|2");
  EXPECT_EQ(pieces(config, kText3), " | a|\n| b");
}

TEST(PreTokenizer, Qwen2) {
  std::string expression(kLlama3Expression);
  expression.replace(expression.find("{1,3}"), 5, "");
  const Json config = sequence({split(expression), byte_level(false, false)});
  EXPECT_EQ(pieces(config, kText1),
            "Hello| | world|'s| |1|2|3|4|5| CAN|'T|\n\n| | foo|_bar| 你好|！é|😀|\t| x| ");
  EXPECT_EQ(pieces(config, kText2), "I|'m| | DON|'T|\r\n \n|3|.|1|4| | HTTPServer|-|2");
}

TEST(PreTokenizer, Gpt4o) {
  for (const bool removed : {false, true}) {
    const Json step = removed ? split(kGpt4o, "Removed", true) : split(kGpt4o);
    const Json config = sequence({step, byte_level(false, false)});
    EXPECT_EQ(pieces(config, kText1),
              "Hello| | world's| |123|45| CAN'T|\n\n| | foo|_bar| 你好|！é|😀|\t| x| ");
    EXPECT_EQ(pieces(config, kText2), "I'm| | DON'T|\r\n \n|3|.|14| | HTTPServer|-|2");
  }
}

TEST(PreTokenizer, Digits) {
  Json digits = Json::object({{"type", "Digits"}, {"individual_digits", true}});
  EXPECT_EQ(pieces(sequence({digits, byte_level(false, true)}), kText1),
            "Hello| | world|'s| |1|2|3|4|5| CAN|'|T|\n\n | foo|_|bar| 你好|！|é|😀|\t| x| ");
  digits["individual_digits"] = false;
  EXPECT_EQ(pieces(sequence({digits, byte_level(false, true)}), "a12½ 3"), "a|12½| |3");
}

TEST(PreTokenizer, SplitBehaviours) {
  const auto cut = [](std::string_view behavior, bool invert) {
    return pieces(sequence({split("-", behavior, invert), byte_level(false, false)}), "the-final--countdown");
  };
  EXPECT_EQ(cut("Isolated", false), "the|-|final|-|-|countdown");
  EXPECT_EQ(cut("Isolated", true), "the|-|final|-|-|countdown");
  EXPECT_EQ(cut("Removed", false), "the|final|countdown");
  EXPECT_EQ(cut("Removed", true), "-|-|-");
  EXPECT_EQ(cut("MergedWithPrevious", false), "the-|final-|-|countdown");
  EXPECT_EQ(cut("MergedWithPrevious", true), "the|-final|-|-countdown");
  EXPECT_EQ(cut("MergedWithNext", false), "the|-final|-|-countdown");
  EXPECT_EQ(cut("MergedWithNext", true), "the-|final-|-|countdown");
  EXPECT_EQ(cut("Contiguous", false), "the|-|final|--|countdown");
  EXPECT_EQ(cut("Contiguous", true), "the|-|final|--|countdown");
  Json literal = split("x");
  literal["pattern"] = Json::object({{"String", ".*"}});
  EXPECT_EQ(pieces(sequence({literal, byte_level(false, false)}), "a.*b"), "a|.*|b");
}

Json metaspace(const char* scheme, bool split) {
  return Json::object(
      {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", scheme}, {"split", split}});
}

TEST(PreTokenizer, Metaspace) {
  for (const char* scheme : {"always", "first"}) {
    EXPECT_EQ(pieces(metaspace(scheme, true), "Hey my  friend"), "▁Hey|▁my|▁|▁friend");
    EXPECT_EQ(pieces(metaspace(scheme, false), "Hey my  friend"), "▁Hey▁my▁▁friend");
  }
  EXPECT_EQ(pieces(metaspace("never", true), "Hey my  friend"), "Hey|▁my|▁|▁friend");
  for (const char* scheme : {"always", "first", "never"}) {
    EXPECT_EQ(pieces(metaspace(scheme, true), " Hey"), "▁Hey");
    EXPECT_EQ(pieces(metaspace(scheme, true), ""), "");
  }
  Json old = Json::object({{"type", "Metaspace"}, {"replacement", "_"}, {"add_prefix_space", false}});
  EXPECT_EQ(pieces(old, "a b"), "a|_b");
  const Json later = sequence({split("-"), metaspace("first", true)});
  EXPECT_EQ(pieces(later, "a-b"), "▁a|-|b");
}

TEST(PreTokenizer, WordsAndPunctuation) {
  const auto typed = [](const char* type) { return Json::object({{"type", type}}); };
  EXPECT_EQ(pieces(typed("BertPreTokenizer"), kText1),
            "Hello|world|'|s|12345|CAN|'|T|foo|_|bar|你好|！|é😀|x");
  EXPECT_EQ(pieces(typed("Whitespace"), kText1), "Hello|world|'|s|12345|CAN|'|T|foo_bar|你好|！|é|😀|x");
  EXPECT_EQ(pieces(typed("WhitespaceSplit"), kText1), "Hello|world's|12345|CAN'T|foo_bar|你好！é😀|x");
  EXPECT_EQ(pieces(typed("WhitespaceSplit"), kText2), "I'm|DON'T|3.14|HTTPServer-2");
  EXPECT_EQ(pieces(typed("Punctuation"), "a, (b)..c"), "a|,| |(|b|)|.|.|c");
  Json contiguous = typed("Punctuation");
  contiguous["behavior"] = "Contiguous";
  EXPECT_EQ(pieces(contiguous, "a..c"), "a|..|c");
}

TEST(PreTokenizer, NullLeavesAllInOnePiece) {
  EXPECT_EQ(pieces(Json(), "a b\nc"), "a b\nc");
  EXPECT_EQ(pieces(Json(), ""), "");
}

TEST(PreTokenizer, DialectOfTheReference) {
  const auto cut = [](std::string_view expression, std::string_view text) {
    return pieces(sequence({split(expression), byte_level(false, false)}), text);
  };
  EXPECT_EQ(cut("\\s", "a\u180Eb\u0085c"), "a\u180Eb|\u0085|c");
  EXPECT_EQ(cut("\\w+", "-\u00BD-_\u0301-"), "-|\u00BD|-|_\u0301|-");
  EXPECT_EQ(cut("[\\w]+", "-\u00B2\u24B6-"), "-|\u00B2\u24B6|-");
  EXPECT_EQ(cut("\\p{Han}+", "a\u4E00\u3001b"), "a|\u4E00|\u3001b");
  EXPECT_EQ(cut("\\v", "a\x0b\nb"), "a|\x0b|\nb");
  EXPECT_EQ(cut("\\u3040", "a\u3040"), "a|\u3040");
  EXPECT_EQ(cut("a*", "baab"), "b|aa|b");
  EXPECT_EQ(cut("^b", "a\nb"), "a\n|b");
}

// Characters of Unicode 15 and 16 belong to the classes that the reference knows them in.
TEST(PreTokenizer, NewerCharacters) {
  const Json config = byte_level(false, true);
  EXPECT_EQ(pieces(config, "a\U000105C0\U00031350b"), "a\U000105C0\U00031350b");
  EXPECT_EQ(pieces(config, "1\U00010D40"), "1\U00010D40");
  EXPECT_EQ(pieces(config, "a\u0897\U0001FAE9"), "a|\u0897\U0001FAE9");
}

TEST(PreTokenizer, RunawayExpressionIsAnError) {
  const Json config = sequence({split("(?:a|aa|aaa)+[y-z]"), byte_level(false, false)});
  try {
    pieces(config, std::string(5000, 'a'));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    EXPECT_NE(std::string(error.what()).find("(?:a|aa|aaa)+[y-z]"), std::string::npos);
  }
}

}  // namespace
}  // namespace lode::text
