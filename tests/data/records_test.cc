#include "data/records.h"

#include "core/rng.h"
#include "data/utf8.h"
#include "data_testing.h"

namespace lode {
namespace {

using Texts = std::vector<std::string>;

class Records : public testing::Test {
 protected:
  Texts read(const std::string& name, std::string_view contents) {
    put_file(folder_ / name, contents);
    const SourceFile source = find_sources(real_files(), {folder_ / name}).front();
    report_ = {};
    Texts texts;
    RawRecord record;
    std::string text;
    const auto reader = open_records(real_files(), source, options_);
    while (reader->next(record)) {
      if (decode_record(source, options_, record, text, report_)) texts.push_back(text);
    }
    EXPECT_EQ(report_.documents, static_cast<std::int64_t>(texts.size()));
    return texts;
  }
  // The message under `fail`; under `skip` the bad record is counted as `reason` and the others are kept.
  std::string refuse(const std::string& name, std::string_view contents, const std::string& reason,
                     const Texts& others) {
    options_.bad_records = BadRecords::skip;
    EXPECT_EQ(read(name, contents), others);
    EXPECT_EQ(report_.bad, (std::map<std::string, std::int64_t>{{reason, 1}}));
    EXPECT_EQ(report_.bad_examples.size(), 1u);
    options_.bad_records = BadRecords::fail;
    const std::string message = error_of(ErrorKind::data, [&] { read(name, contents); });
    expect_contains(message, folder_ / name);
    return message;
  }

  TempFolder folder_;
  ReadOptions options_;
  ReadReport report_;
};

TEST_F(Records, JsonLinesAndArraysWhateverTheName) {
  const std::string lines =
      "{\"text\": \"one\"}\n\n  {\"id\": 3, \"text\": \"two\\nlines\"}\r\n{\"text\":\"three\"}";
  const std::string array =
      " [ {\"text\": \"one\"},\n{\"text\": \"two\\nlines\", \"x\": [1, {\"y\": \"]},\\\"\"}]}"
      ", {\"text\": \"three\"} ] \n";
  const Texts expected{"one", "two\nlines", "three"};
  for (const char* name : {"a.json", "a.jsonl"}) {
    EXPECT_EQ(read(name, lines), expected);
    EXPECT_EQ(read(name, array), expected);
    EXPECT_EQ(read(name, "\xef\xbb\xbf" + lines), expected);
    EXPECT_EQ(read(name, "\xef\xbb\xbf" + array), expected);
    EXPECT_EQ(read(name + std::string(".gz"), gzip(lines)), expected);
    EXPECT_EQ(read(name + std::string(".zst"), zstd(array)), expected);
    EXPECT_EQ(read(name, "[]"), Texts());
    EXPECT_EQ(read(name, ""), Texts());
    EXPECT_EQ(read(name, "\n \r\n"), Texts());
  }
}

TEST_F(Records, BrokenJsonNamesFileAndLine) {
  const std::string good = "{\"text\": \"good\"}\n", last = "{\"text\": \"last\"}";
  const Texts others{"good", "last"};
  expect_contains(refuse("a.jsonl", good + "{\"text\": \"bro\n" + last, "broken JSON", others),
                  "a.jsonl:2: ");
  expect_contains(refuse("a.jsonl", good + "\n\n{\"text\": 1}\n" + last, "wrong type", others),
                  "a.jsonl:4: the field \"text\" must be a string, found integer");
  expect_contains(
      refuse("a.jsonl", good + "{\"prompt\": \"x\", \"answer\": 1}\n" + last, "missing field", others),
      "a.jsonl:2: no field \"text\"; the record has prompt, answer");
  expect_contains(refuse("a.jsonl", good + "\"text\"\n" + last, "not an object", others),
                  "a.jsonl:2: expected");
  expect_contains(refuse("a.jsonl", good + "{\"text\": \"\\ud800\"}\n" + last, "broken JSON", others),
                  "a.jsonl:2: ");
  expect_contains(refuse("a.jsonl", good + "{\"text\": \"a\\u0000\"}\n" + last, "NUL byte", others),
                  "a.jsonl:2: ");
  expect_contains(
      refuse("a.jsonl", good + std::string("{\"text\": \"\0\"}\n", 14) + last, "NUL byte", others),
      "a.jsonl:2: NUL byte (byte 11 of the line)");
  expect_contains(refuse("a.jsonl", good + "{\"text\": \"\xff\"}\n" + last, "not UTF-8", others),
                  "a.jsonl:2: not UTF-8 (byte 11 of the line)");
  expect_contains(refuse("a.jsonl", good + std::string(2000, '[') + "\n" + last, "broken JSON", others),
                  "deeper than");
  expect_contains(
      refuse("a.jsonl", good + "{\"text\": \"a\", \"text\": \"b\"}\n" + last, "broken JSON", others),
      "twice");
}

TEST_F(Records, BrokenArrays) {
  const std::string good = "[{\"text\": \"good\"},\n";
  expect_contains(
      refuse("a.json", good + "{\"text\": nope},\n{\"text\": \"last\"}]", "broken JSON", {"good", "last"}),
      "a.json:2: ");
  expect_contains(
      refuse("a.json", good + "{\"text\": \"x\"", "the file ends within an array element", {"good"}),
      "a.json:2: ");
  expect_contains(refuse("a.json", "[{\"text\": \"good\"}\n", "the array is not closed", {"good"}),
                  "a.json:2: ");
  expect_contains(
      refuse("a.json", good + "{\"text\": \"x\"}\n] {", "text after the end of the array", {"good", "x"}),
      "a.json:3: ");
  expect_contains(refuse("a.json", good + "]", "broken JSON", {"good"}), "a.json:2: ");
  expect_contains(refuse("a.json", "[{\"text\": \"good\"} {\"text\": \"x\"}]", "broken JSON", {}),
                  "a.json:1: ");
  expect_contains(refuse("a.json", "[", "the array is not closed", {}), "a.json:1: ");
}

TEST_F(Records, AnotherColumn) {
  options_.text_column = "content";
  EXPECT_EQ(read("a.jsonl", "{\"text\": 3, \"content\": \"yes\"}"), (Texts{"yes"}));
}

TEST_F(Records, TextFilesAreOneDocumentOrSeparated) {
  EXPECT_EQ(read("a.txt", "one\n\ntwo\n"), (Texts{"one\n\ntwo\n"}));
  EXPECT_EQ(read("a.md.gz", gzip("one\n\ntwo\n")), (Texts{"one\n\ntwo\n"}));
  options_.separator = "\n\n";
  EXPECT_EQ(read("a.txt", "one\n\ntwo\n\n\n\nthree\n"), (Texts{"one", "two", "three\n"}));
  EXPECT_EQ(report_.empty, 1);
  EXPECT_EQ(read("a.txt", "one\n\n"), (Texts{"one"}));
  EXPECT_EQ(report_.empty, 0);
  EXPECT_EQ(read("a.txt", "\xef\xbb\xbfone\r\n\r\ntwo\r\nx\r\r\n\r\nthree\r"),
            (Texts{"one", "two\nx\r", "three\r"}));
  EXPECT_EQ(report_.crlf, 1);  // line ends within separators do not count
}

TEST_F(Records, CrlfIsCountedPerDocument) {
  options_.separator = "---";
  EXPECT_EQ(read("a.txt", "a\r\nb---c\nd---e\r\n"), (Texts{"a\nb", "c\nd", "e\n"}));
  EXPECT_EQ(report_.crlf, 2);
  options_.separator.clear();
  EXPECT_EQ(read("a.txt", "a\r\nb\r\n"), (Texts{"a\nb\n"}));
  EXPECT_EQ(report_.crlf, 1);
  EXPECT_EQ(read("a.txt", "a\rb\r"), (Texts{"a\rb\r"}));
  EXPECT_EQ(report_.crlf, 0);
}

TEST_F(Records, BadText) {
  expect_contains(refuse("a.txt", "one\ntwo \xc3", "not UTF-8", {}),
                  "a.txt:2: not UTF-8 (byte 5 of the line)");
  expect_contains(refuse("a.txt", std::string("one\n\0", 5), "NUL byte", {}),
                  "a.txt:2: NUL byte (byte 1 of the line)");
  options_.separator = "\n--\n";
  expect_contains(refuse("a.txt", "one\n--\ntwo\n\xff\n--\nthree", "not UTF-8", {"one", "three"}),
                  "a.txt:4: ");
}

TEST_F(Records, EmptyDocumentsAreDroppedAndCounted) {
  EXPECT_EQ(read("a.jsonl", "{\"text\": \"\"}\n{\"text\": \" \\n\"}\n{\"text\": \"x\"}\n"), (Texts{"x"}));
  EXPECT_EQ(report_.empty, 2);
  EXPECT_EQ(read("a.txt", ""), Texts());
  EXPECT_EQ(report_.empty, 1);
  expect_contains(report_.lines().front(), "1 empty documents");
}

TEST_F(Records, TooLongRecords) {
  options_.max_record_bytes = 1000;
  const std::string fits(980, 'x'), longer(600000, 'x');
  const std::string line = "{\"text\": \"" + fits + "\"}\n", long_line = "{\"text\": \"" + longer + "\"}\n";
  expect_contains(refuse("a.jsonl", line + long_line + line, "longer than 1000 B", {fits, fits}),
                  "a.jsonl:2: ");
  const std::string array = "[" + line + "," + long_line + "," + line + "]";
  expect_contains(refuse("a.json", array, "longer than 1000 B", {fits, fits}), "a.json:2: ");
  options_.separator = "##";
  expect_contains(refuse("a.txt", fits + "##\n" + longer + "##" + fits, "longer than 1000 B", {fits, fits}),
                  "a.txt:1: longer");
  options_.separator.clear();
  options_.max_document_bytes = 1000;
  EXPECT_EQ(read("a.txt", fits), (Texts{fits}));
  expect_contains(refuse("a.txt", longer, "longer than 1000 B; choose a separator between documents", {}),
                  "a.txt:1: ");
}

// Records are the same wherever the pieces in which a file is read end.
TEST_F(Records, PiecesDoNotMatter) {
  Rng rng(7, "pieces");
  for (int round = 0; round < 30; ++round) {
    options_.separator = round % 2 == 0 ? "<|>" : "\n";
    Texts expected;
    std::string text, lines;
    for (std::size_t size = 0; size < 600000; size = text.size()) {
      std::string document = "d";
      for (std::uint64_t n = rng.below(3) == 0 ? rng.below(300000) : rng.below(40); n > 0; --n) {
        document += document.ends_with("<|") ? 'a' : "ab<|\r>"[rng.below(6)];
      }
      document += "e";
      if (!expected.empty())
        text += options_.separator == "\n" && rng.below(2) == 0 ? "\r\n" : options_.separator;
      text += document;
      lines += Json::object({{"text", document}}).dump() + "\n";
      expected.push_back(document);
    }
    ASSERT_EQ(read("a.txt", text), expected);
    ASSERT_EQ(read("a.jsonl", lines), expected);
  }
}

TEST_F(Records, RandomDamageNeverCrashes) {
  options_.bad_records = BadRecords::skip;
  const std::string array = "[{\"text\": \"one\\u00e9\"}, {\"text\": \"\xc3\xa9\", \"n\": [1, 2.5e3, null]}]";
  const std::string lines = "{\"text\": \"one\"}\n{\"text\": \"two\"}\r\n";
  Rng rng(3, "damage");
  for (int round = 0; round < 3000; ++round) {
    std::string text = round % 2 == 0 ? array : lines;
    for (std::uint64_t n = 1 + rng.below(3); n > 0; --n) {
      text[rng.below(text.size())] = static_cast<char>("[]{},\":\\\n\r\0\xff u1"[rng.below(16)]);
    }
    read("a.json", text);
  }
}

TEST(ReadReports, SumAndRoundTrip) {
  ReadReport a, b;
  a.documents = 2;
  a.text_bytes = 10;
  a.bad = {{"x", 1}};
  a.bad_examples = {"f:1: x"};
  b.documents = 1;
  b.empty = 4;
  b.crlf = 5;
  b.bad = {{"x", 6}, {"y", 1}};
  b.bad_examples = {"1", "2", "3", "4", "5"};
  a.add(b);
  EXPECT_EQ(a.documents, 3);
  EXPECT_EQ(a.num_bad(), 8);
  EXPECT_EQ(a.bad_examples, (Texts{"f:1: x", "1", "2", "3", "4"}));
  EXPECT_EQ(ReadReport::from_json(a.to_json()).to_json(), a.to_json());
  expect_contains(error_of(ErrorKind::data, [] { ReadReport::from_json(Json::object()); }), "documents");
}

TEST(Utf8, FindsTheFirstBadByte) {
  using Position = std::optional<std::size_t>;
  for (const char* good : {"", "plain", "\xc2\x80", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf",
                           "12345678\xc3\xa9"
                           "12345678"}) {
    EXPECT_EQ(find_invalid_utf8(good), Position()) << good;
  }
  for (const char* bad :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xc3", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xe2\x82",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xf0\x9f\x98"}) {
    EXPECT_EQ(find_invalid_utf8(bad), Position(0)) << bad;
    for (std::size_t before = 1; before < 20; ++before) {
      EXPECT_EQ(find_invalid_utf8(std::string(before, 'a') + bad + "aaaaaaaaa"), Position(before));
    }
  }
}

}  // namespace
}  // namespace lode
