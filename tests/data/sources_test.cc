#include "data/sources.h"

#include <unistd.h>

#include "data_testing.h"

namespace lode {
namespace {

class Sources : public testing::Test {
 protected:
  Sources() {
    FileSystem& files = real_files();
    files.make_directory(folder_ / "a/deep");
    files.make_directory(folder_ / "b");
    files.make_directory(folder_ / "none");
    for (const char* name : {"a/2.txt", "a/10.md", "a/1.jsonl.gz", "a/deep/x.json.zst", "a/.hidden.txt",
                             "a/notes.pdf", "b/1.txt", "b/[1].txt", "none/readme.rst"}) {
      put_file(folder_ / name, "x");
    }
  }
  std::vector<std::string> find(const std::vector<std::string>& names) const {
    std::vector<std::string> paths, found;
    for (const std::string& name : names) paths.push_back(folder_ / name);
    for (const SourceFile& source : find_sources(real_files(), paths)) {
      found.push_back(source.path.substr(folder_.path().size() + 1));
    }
    return found;
  }
  using Names = std::vector<std::string>;
  TempFolder folder_;
};

TEST_F(Sources, FilesFoldersAndPatterns) {
  EXPECT_EQ(find({"a"}), (Names{"a/1.jsonl.gz", "a/10.md", "a/2.txt", "a/deep/x.json.zst"}));
  EXPECT_EQ(find({"b/1.txt", "a/2.txt"}), (Names{"b/1.txt", "a/2.txt"}));
  EXPECT_EQ(find({"*/1*"}), (Names{"a/1.jsonl.gz", "a/10.md", "b/1.txt"}));
  EXPECT_EQ(find({"**/*.txt"}), (Names{"a/2.txt", "b/1.txt", "b/[1].txt"}));
  EXPECT_EQ(find({"**/*.zst"}), (Names{"a/deep/x.json.zst"}));
  EXPECT_EQ(find({"?/deep"}), (Names{"a/deep/x.json.zst"}));
  EXPECT_EQ(find({"a/[0-2].t*"}), (Names{"a/2.txt"}));
  EXPECT_EQ(find({"b/[1].txt"}), (Names{"b/[1].txt"}));  // what exists is no pattern
}

TEST_F(Sources, KindsByName) {
  const auto sources = find_sources(real_files(), {folder_ / "a"});
  EXPECT_EQ(sources[0].format, FileFormat::json);
  EXPECT_EQ(sources[0].compression, Compression::gzip);
  EXPECT_EQ(sources[1].format, FileFormat::text);
  EXPECT_EQ(sources[1].compression, Compression::none);
  EXPECT_EQ(sources[3].format, FileFormat::json);
  EXPECT_EQ(sources[3].compression, Compression::zstd);
}

TEST_F(Sources, NamesWhatIsMissing) {
  expect_contains(error_of(ErrorKind::data, [&] { find({"c.txt"}); }), "c.txt: no such file");
  expect_contains(error_of(ErrorKind::data, [&] { find({"none"}); }), "none: the folder holds no data file");
  expect_contains(error_of(ErrorKind::data, [&] { find({"a/*.csv"}); }), "*.csv: no data file matches");
  const std::string message = error_of(ErrorKind::data, [&] { find({"a/notes.pdf"}); });
  expect_contains(message, "notes.pdf: unknown kind");
  expect_contains(message, ".jsonl");
}

TEST_F(Sources, CircularLinksEnd) {
  ASSERT_EQ(::symlink((folder_ / "a").c_str(), (folder_ / "a/deep/loop").c_str()), 0);
  expect_contains(error_of(ErrorKind::data, [&] { find({"a"}); }), "circular");
  expect_contains(error_of(ErrorKind::data, [&] { find({"**/*.txt"}); }), "circular");
}

}  // namespace
}  // namespace lode
