#include "data/data_sets.h"

#include "data_testing.h"

namespace lode {
namespace {

class DataSetsTest : public testing::Test {
 protected:
  DataSetsTest() {
    put_file(folder_ / "a.json", "[]");
    put_file(folder_ / "b.csv", "text\nx\n");
    real_files().make_directory(folder_ / "many");
    put_file(folder_ / "many/1.jsonl", "{}");
    put_file(folder_ / "many/2.jsonl", "{}");
  }
  void registry(std::string_view text) { put_file(folder_ / "dataset_info.json", text); }
  std::vector<DataSetSource> find(const std::vector<std::string>& entries) {
    return find_data_sets(real_files(), folder_.path(), entries);
  }
  std::string error(std::string_view entry) {
    registry(format(R"({{"set":{}}})", entry));
    return error_of(ErrorKind::data, [&] { find({"set"}); });
  }
  TempFolder folder_;
};

TEST_F(DataSetsTest, ReadsTheRegistry) {
  registry(R"({"one":{"file_name":"a.json"},"two":{"file_name":"many","formatting":"sharegpt","num_samples":3,
    "columns":{"messages":"chat","tools":null},"tags":{"role_tag":"role","user_tag":"u"},"split":"train"},
    "three":{"hf_hub_url":"x/y","file_name":["a.json","b.csv"]}})");
  const auto sets = find({"two", "one", "three"});
  ASSERT_EQ(sets.size(), 3u);
  EXPECT_EQ(sets[0].name, "two");
  EXPECT_EQ(sets[0].files.size(), 2u);
  EXPECT_EQ(sets[0].num_samples, 3);
  EXPECT_EQ(sets[0].schema.format, ChatFormat::sharegpt);
  EXPECT_EQ(sets[0].schema.columns.messages, "chat");
  EXPECT_FALSE(sets[0].schema.columns.tools);
  EXPECT_EQ(sets[0].schema.tags.user, "u");
  EXPECT_FALSE(sets[0].schema.tags.assistant);
  EXPECT_EQ(sets[1].schema.format, ChatFormat::detect);
  EXPECT_EQ(sets[2].files[1].format, FileFormat::csv);
}

TEST_F(DataSetsTest, PathsBesideNames) {
  registry(R"({"one":{"file_name":"a.json"}})");
  EXPECT_EQ(find({"b.csv"})[0].files[0].path, folder_ / "b.csv");
  EXPECT_EQ(find({"many"})[0].files.size(), 2u);
  EXPECT_EQ(find({"*.json"})[0].files.size(), 1u);  // not the registry itself
  EXPECT_EQ(find_data_sets(real_files(), "", {folder_ / "a.json"})[0].files.size(), 1u);
  const std::string unknown = error_of(ErrorKind::data, [&] { find({"nine"}); });
  expect_contains(unknown, "data set nine: neither in ");
  expect_contains(unknown, "dataset_info.json has: one");
  real_files().remove(folder_ / "dataset_info.json");
  expect_contains(error_of(ErrorKind::data, [&] { find({"nine"}); }),
                  "no such file or folder, and there is no ");
}

TEST_F(DataSetsTest, EveryKeyIsUsedOrRefused) {
  expect_contains(error("3"), "dataset_info.json: set: expected an object, found integer");
  expect_contains(error("{}"), "file_name is missing");
  expect_contains(error(R"({"hf_hub_url":"a/b"})"), "hf_hub_url: data sets are not downloaded");
  expect_contains(error(R"({"script_url":"x","file_name":"a.json"})"),
                  "script_url: loading scripts are not run");
  expect_contains(error(R"({"file_name":"a.json","subset":"x"})"), "subset: parts of hub data sets");
  expect_contains(error(R"({"file_name":"a.json","split":"test"})"), "split: parts of hub data sets");
  expect_contains(error(R"({"file_name":"a.json","ranking":true})"), "ranking: preference pairs");
  expect_contains(error(R"({"file_name":"a.json","colums":{}})"), "unknown key colums; known are file_name");
  expect_contains(error(R"({"file_name":"a.json","columns":{"promt":"x"}})"),
                  "columns.promt is not supported; known are prompt");
  expect_contains(error(R"({"file_name":"a.json","columns":{"prompt":1}})"),
                  "columns.prompt: expected a string");
  expect_contains(error(R"({"file_name":"a.json","tags":{"x":"x"}})"),
                  "tags.x is not supported; known are role_tag");
  expect_contains(error(R"({"file_name":"a.json","formatting":"x"})"),
                  "unknown format \"x\"; known are alpaca, sharegpt");
  expect_contains(error(R"({"file_name":"a.json","num_samples":0})"),
                  "num_samples: expected a number from 1 up");
  expect_contains(error(R"({"file_name":"gone.json"})"), "gone.json: no such file");
  registry("[]");
  expect_contains(error_of(ErrorKind::data, [&] { find({"set"}); }), "expected an object with one entry");
}

}  // namespace
}  // namespace lode
