#include "data/records.h"
#include "data_testing.h"

namespace lode {
namespace {

// Each record as "line:json" or "line!reason".
std::vector<std::string> read_csv_text(std::string_view text, Compression compression = Compression::none,
                                       std::size_t limit = 1000) {
  TempFolder folder;
  const std::string path = folder / "a.csv";
  put_file(path, compression == Compression::gzip ? gzip(text) : std::string(text));
  ReadOptions options;
  options.max_record_bytes = limit;
  const auto reader = open_records(real_files(), {path, FileFormat::csv, compression}, options);
  std::vector<std::string> found;
  RawRecord record;
  while (reader->next(record)) {
    found.push_back(std::to_string(record.line) +
                    (record.bad.empty() ? ":" + compact(record.text) : "!" + record.bad));
  }
  return found;
}

using Found = std::vector<std::string>;

TEST(Csv, QuotesLinesAndEnds) {
  EXPECT_EQ(read_csv_text("a,b\n1,2\n"), (Found{R"(2:{"a":"1","b":"2"})"}));
  EXPECT_EQ(read_csv_text("\xef\xbb\xbf"
                          "a,b\r\n\"x,\"\"y\"\"\r\nz\",\r\n\r\n3,4"),
            (Found{"2:{\"a\":\"x,\\\"y\\\"\\r\\nz\",\"b\":\"\"}", R"(5:{"a":"3","b":"4"})"}));
  EXPECT_EQ(read_csv_text("a\rx\ry\r"), (Found{R"(2:{"a":"x"})", R"(3:{"a":"y"})"}));
  EXPECT_EQ(read_csv_text("a\n\"\"\n"), (Found{R"(2:{"a":""})"}));
  EXPECT_EQ(read_csv_text("a,b\n1,2", Compression::gzip), (Found{R"(2:{"a":"1","b":"2"})"}));
  EXPECT_EQ(read_csv_text("a,b\nx\"y,2"), (Found{R"(2:{"a":"x\"y","b":"2"})"}));
  EXPECT_EQ(read_csv_text(""), Found{});
  EXPECT_EQ(read_csv_text("a,b\n"), Found{});
}

TEST(Csv, BadRecordsDoNotHideTheNext) {
  EXPECT_EQ(read_csv_text("a,b\n1\n1,2,3\n\"x\"y,1\nok,1\n"),
            (Found{"2!1 fields where the header has 2", "3!3 fields where the header has 2",
                   "4!text behind a closing quote", R"(5:{"a":"ok","b":"1"})"}));
  EXPECT_EQ(read_csv_text("a,b\n\xff,1\nok,1\n"), (Found{"2!not UTF-8", R"(3:{"a":"ok","b":"1"})"}));
  EXPECT_EQ(read_csv_text("a\n\"never\nclosed\n"), (Found{"2!a quote is not closed"}));
  EXPECT_EQ(read_csv_text("a\n" + std::string(50, 'x') + "\ny\n", Compression::none, 20),
            (Found{"2!longer than 20 bytes", R"(3:{"a":"y"})"}));
  EXPECT_EQ(read_csv_text("a,a\n1,2\n"), (Found{"1!the header names the column \"a\" twice"}));
  EXPECT_EQ(read_csv_text("a,\n1,2\n"), (Found{"1!the header has a column without a name"}));
}

}  // namespace
}  // namespace lode
