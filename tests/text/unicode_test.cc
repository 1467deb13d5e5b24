#include "text/unicode.h"

#include <gtest/gtest.h>

#include <set>

namespace lode::text {
namespace {

TEST(Unicode, ByteAlphabetIsABijection) {
  std::set<char32_t> seen;
  for (int b = 0; b < 256; b++) {
    const char32_t c = byte_to_character(static_cast<std::uint8_t>(b));
    EXPECT_TRUE(seen.insert(c).second);
    EXPECT_EQ(character_to_byte(c), b);
  }
  EXPECT_EQ(byte_to_character(' '), 0x120u);
  EXPECT_EQ(byte_to_character('\n'), 0x10Au);
  EXPECT_EQ(byte_to_character('!'), U'!');
  EXPECT_EQ(byte_to_character(173), 0x143u);
  EXPECT_EQ(character_to_byte(' '), -1);
  EXPECT_EQ(character_to_byte(0x144), -1);
  EXPECT_EQ(bytes_to_alphabet(" a\n"), "ĠaĊ");
  EXPECT_EQ(alphabet_to_bytes("ĠaĊ"), " a\n");
  EXPECT_EQ(alphabet_to_bytes("a b"), "a b");
  EXPECT_EQ(alphabet_to_bytes("Ġ\u4E00"), "Ġ\u4E00");
  EXPECT_FALSE(in_alphabet("a b"));
  EXPECT_TRUE(in_alphabet(""));
}

TEST(Unicode, FindsTheValidPrefix) {
  EXPECT_EQ(valid_utf8_prefix(""), 0u);
  EXPECT_EQ(valid_utf8_prefix("plain ascii text, longer than a word"), 36u);
  EXPECT_EQ(valid_utf8_prefix("\u00e9\u4E00\U0001F600"), 9u);
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xC3", "\xE4\xB8", "\xF0\x9F\x98"}) {
    EXPECT_EQ(valid_utf8_prefix(std::string("12345678") + bad), 8u) << bad;
  }
}

TEST(Unicode, ReplacesMaximalInvalidSequences) {
  EXPECT_EQ(lossy_utf8("a\xF0\x9F\x98z"), "a\uFFFDz");
  EXPECT_EQ(lossy_utf8("\xE4\xB8\xE4\xB8\x80"), "\uFFFD\u4E00");
  EXPECT_EQ(lossy_utf8("\xC0\x80"), "\uFFFD\uFFFD");
  EXPECT_EQ(lossy_utf8("\xF4\x90\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(lossy_utf8("ok"), "ok");
  EXPECT_EQ(lossy_utf8(""), "");
}

TEST(Unicode, TellsIncompleteFromInvalid) {
  bool incomplete = false;
  EXPECT_EQ(invalid_utf8_length("\xF0\x9F\x98", incomplete), 3u);
  EXPECT_TRUE(incomplete);
  EXPECT_EQ(invalid_utf8_length("\xF0\x9Fz", incomplete), 2u);
  EXPECT_FALSE(incomplete);
  EXPECT_EQ(invalid_utf8_length("\xFF", incomplete), 1u);
  EXPECT_FALSE(incomplete);
}

TEST(Unicode, CodePointsRoundTrip) {
  for (const char32_t c : {0x1u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xFFFFu, 0x10000u, 0x10FFFFu}) {
    std::string text;
    append_code_point(c, text);
    std::size_t at = 0;
    EXPECT_EQ(next_code_point(text, at), c);
    EXPECT_EQ(at, text.size());
  }
}

TEST(Unicode, Nfc) {
  EXPECT_EQ(nfc("abc"), "abc");
  EXPECT_EQ(nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(nfc("\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(nfc("\u212B"), "\u00C5");
  EXPECT_EQ(nfc("a\u0301\u0323"), "\u1EA1\u0301");
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093C");
  EXPECT_EQ(nfc("\u0301\u0323"), "\u0323\u0301");
  EXPECT_EQ(nfc("\u00e9"), "\u00e9");
  // The reference's tables are older than these characters.
  EXPECT_EQ(nfc("\u0898\u0334"), "\u0898\u0334");
  EXPECT_EQ(nfc("\U00011938"), "\U00011938");
  EXPECT_EQ(nfc("\U00011935\U00011930"), "\U00011935\U00011930");
}

TEST(Unicode, StandInsKeepTheLength) {
  EXPECT_EQ(with_stand_ins("plain \u00e9 \u4E00 \U0001F600"), "");
  const std::string text = "a\U000105C0\u0897";
  const std::string twin = with_stand_ins(text);
  EXPECT_EQ(twin.size(), text.size());
  EXPECT_EQ(valid_utf8_prefix(twin), twin.size());
  EXPECT_NE(twin, text);
  EXPECT_EQ(twin[0], 'a');
}

}  // namespace
}  // namespace lode::text
