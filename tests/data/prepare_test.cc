#include "data/prepare.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utime.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "core/rng.h"
#include "data_testing.h"

namespace lode {
namespace {

using Texts = std::vector<std::string>;

class Prepare : public testing::Test {
 protected:
  Prepare() {
    options_.cache = folder_ / "cache/tokens";
    options_.shard_bytes = 2000;
    real_files().make_directory(folder_ / "data");
  }
  void put(const std::string& name, std::string_view text) { put_file(folder_ / "data/" + name, text); }
  std::shared_ptr<const PreparedData> prepare(FileSystem& files = real_files(),
                                              bool independent_lines = false) {
    const auto sources = find_sources(real_files(), {folder_ / "data"});
    return prepare_data(files, sources, encoder_.get(independent_lines), options_);
  }
  Texts put_lines(const std::string& name, int count) {
    Rng rng(static_cast<std::uint64_t>(count), name);
    Texts texts;
    std::string lines;
    for (int i = 0; i < count; ++i) {
      texts.push_back("document " + std::to_string(i) + std::string(rng.below(80), 'x'));
      lines += Json::object({{"text", texts.back()}}).dump() + "\n";
    }
    put(name, lines);
    return texts;
  }
  Texts cache_files(std::string_view ending = ".shard") const {
    Texts found;
    for (const std::string& name : real_files().list(options_.cache)) {
      if (name.ends_with(ending)) found.push_back(join_path(options_.cache, name));
    }
    return found;
  }

  TempFolder folder_;
  PrepareOptions options_;
  ByteEncoder encoder_;
};

TEST_F(Prepare, KeepsDocumentsInOrderForAnyThreadsAndShards) {
  Texts expected = put_lines("1.jsonl", 150);
  for (const char* name : {"2.txt", "3.txt", "4.md"}) {
    put(name, std::string("text of ") + name);
    expected.push_back(std::string("text of ") + name);
  }
  for (const std::string& text : put_lines("5.jsonl", 77)) expected.push_back(text);
  std::string fingerprint;
  for (const std::int64_t shard_bytes : {1, 500, 2000, 1 << 20}) {
    for (const int threads : {1, 2, 5}) {
      options_.shard_bytes = shard_bytes;
      options_.threads = threads;
      real_files().remove(options_.cache);
      const auto data = prepare();
      ASSERT_EQ(documents_of(*data), expected);
      EXPECT_EQ(data->report().read.documents, data->num_documents());
      EXPECT_EQ(data->report().files, 5);
      if (fingerprint.empty()) fingerprint = data->fingerprint();
      EXPECT_EQ(data->fingerprint(), fingerprint);
    }
  }
  // A stretch over shards and documents.
  options_.shard_bytes = 500;
  const auto data = prepare();
  std::vector<std::int32_t> all(static_cast<std::size_t>(data->num_tokens())), part(3000);
  data->copy(0, data->num_tokens(), all.data());
  data->copy(777, 3000, part.data());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + 777));
}

TEST_F(Prepare, TheSecondTimeNothingIsEncoded) {
  const Texts expected = put_lines("a.jsonl", 200);
  const auto first = prepare();
  EXPECT_GT(first->report().shards_made, 3);
  EXPECT_EQ(first->report().shards_reused, 0);
  EXPECT_EQ(encoder_.calls, 200);
  const auto second = prepare();
  EXPECT_EQ(encoder_.calls, 200);
  EXPECT_EQ(second->report().shards_made, 0);
  EXPECT_EQ(second->report().shards_reused, first->report().shards_made);
  EXPECT_EQ(documents_of(*second), expected);
  EXPECT_EQ(second->fingerprint(), first->fingerprint());
  EXPECT_EQ(second->report().read.to_json(), first->report().read.to_json());
  // The same contents under another name are the same data.
  real_files().rename(folder_ / "data/a.jsonl", folder_ / "data/b.jsonl");
  EXPECT_EQ(prepare()->fingerprint(), first->fingerprint());
  EXPECT_EQ(encoder_.calls, 200);
}

// Counts how often each data file is opened.
class CountingFiles : public FailingFiles {
 public:
  CountingFiles() : FailingFiles(real_files(), 0, 0) {}
  std::unique_ptr<MappedFile> map(const std::string& path) override {
    if (path.ends_with(".jsonl")) ++opened;
    return FailingFiles::map(path);
  }
  std::atomic<int> opened{0};
};

TEST_F(Prepare, UnchangedFilesAreNotReadAgain) {
  put_lines("a.jsonl", 50);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // until its time stamp is beyond doubt
  CountingFiles files;
  prepare(files);
  EXPECT_EQ(files.opened, 2);  // hashed, read
  prepare(files);
  EXPECT_EQ(files.opened, 2);
  ASSERT_EQ(cache_files(".json").size(), 1u);
  put_file(cache_files(".json").front(), "{ damaged");
  prepare(files);
  EXPECT_EQ(files.opened, 3);  // hashed again
  EXPECT_EQ(encoder_.calls, 50);
}

TEST_F(Prepare, OneChangedByteChangesTheFingerprint) {
  put_lines("a.jsonl", 50);
  const auto before = prepare();
  std::string text = real_files().read(folder_ / "data/a.jsonl");
  text[text.find("document 7") + 9] = '8';
  put_file(folder_ / "data/a.jsonl", text);
  const auto after = prepare();
  EXPECT_NE(after->fingerprint(), before->fingerprint());
  EXPECT_NE(documents_of(*after), documents_of(*before));
}

TEST_F(Prepare, OptionsAndTokenizerChangeTheFingerprint) {
  put("a.txt", "one##two");
  const auto sources = find_sources(real_files(), {folder_ / "data"});
  std::vector<std::string> seen;
  const auto add = [&](const TextEncoder& encoder) {
    const std::string print = prepare_data(real_files(), sources, encoder, options_)->fingerprint();
    EXPECT_EQ(std::ranges::find(seen, print), seen.end());
    seen.push_back(print);
  };
  add(encoder_.get());
  TextEncoder other = encoder_.get();
  other.fingerprint = "other";
  add(other);
  other = encoder_.get();
  other.eos_id.reset();
  add(other);
  options_.read.separator = "##";
  add(encoder_.get());
}

TEST_F(Prepare, AnotherFileOnlyCostsItself) {
  put_lines("a.jsonl", 100);
  prepare();
  put_lines("b.jsonl", 30);
  encoder_.calls = 0;
  const auto data = prepare();
  EXPECT_EQ(data->num_documents(), 130);
  EXPECT_EQ(encoder_.calls, 30);
}

TEST_F(Prepare, DamagedAndMissingShardsAreMadeAgain) {
  const Texts expected = put_lines("a.jsonl", 200);
  prepare();
  const Texts shards = cache_files();
  ASSERT_GT(shards.size(), 4u);
  for (const std::size_t victim : {std::size_t{0}, std::size_t{2}, shards.size() - 1}) {
    std::string bytes = real_files().read(shards[victim]);
    bytes[bytes.size() - 3] ^= 1;
    put_file(shards[victim], bytes);
    encoder_.calls = 0;
    const auto data = prepare();
    EXPECT_EQ(documents_of(*data), expected);
    ASSERT_EQ(data->report().notes.size(), 1u);
    expect_contains(data->report().notes[0], shards[victim] + ": damaged cache file");
    expect_contains(data->report().notes[0], "made again");
    EXPECT_EQ(data->report().shards_made, 1);
    EXPECT_LT(encoder_.calls, 100);
  }
  real_files().remove(shards[1]);
  real_files().remove(shards[3]);
  const auto data = prepare();
  EXPECT_EQ(documents_of(*data), expected);
  EXPECT_TRUE(data->report().notes.empty());
  EXPECT_EQ(data->report().shards_made, 2);
}

TEST_F(Prepare, AnInterruptedPreparationGoesOn) {
  const Texts expected = put_lines("a.jsonl", 60);
  const std::string fingerprint = prepare()->fingerprint();
  bool finished = false;
  std::int64_t reused = 0;
  for (std::int64_t n = 1; !finished; ++n) {
    for (const bool persistent : {true, false}) {
      real_files().remove(options_.cache);
      FailingFiles failing(real_files(), n, ENOSPC, persistent);
      try {
        prepare(failing);
        finished = true;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::data);
        expect_contains(error.what(), options_.cache);
      }
      const auto data = prepare();
      ASSERT_EQ(documents_of(*data), expected);
      EXPECT_EQ(data->fingerprint(), fingerprint);
      EXPECT_TRUE(data->report().notes.empty());
      reused += data->report().shards_reused;
    }
  }
  EXPECT_GT(reused, 10);
}

TEST_F(Prepare, KilledHalfWayGoesOn) {
  const Texts expected = put_lines("a.jsonl", 300);
  options_.shard_bytes = 300;
  for (int round = 1; round < 6; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      options_.progress = [&](std::int64_t bytes) {
        if (bytes > round * 2000) ::raise(SIGKILL);
      };
      prepare();
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
  }
  const auto data = prepare();
  EXPECT_EQ(documents_of(*data), expected);
  EXPECT_GT(data->report().shards_reused, 20);
}

TEST_F(Prepare, TwoProcessesAtOnce) {
  const Texts expected = put_lines("a.jsonl", 400);
  for (int round = 0; round < 5; ++round) {
    real_files().remove(options_.cache);
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        ::_exit(documents_of(*prepare()) == expected ? 0 : 1);
      } catch (...) {
        ::_exit(2);
      }
    }
    EXPECT_EQ(documents_of(*prepare()), expected);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_TRUE(cache_files().size() > 2 && prepare()->report().notes.empty());
  }
}

TEST_F(Prepare, LeftoversOfKilledProcessesGo) {
  put("a.txt", "text");
  real_files().make_directory(options_.cache);
  const std::string old = join_path(options_.cache, "x-00000.shard.tmp-1-1"), fresh = old + "2";
  put_file(old, "half");
  put_file(fresh, "half");
  const utimbuf long_ago{1000, 1000};
  ASSERT_EQ(::utime(old.c_str(), &long_ago), 0);
  prepare();
  EXPECT_FALSE(real_files().exists(old));
  EXPECT_TRUE(real_files().exists(fresh));
}

TEST_F(Prepare, BadRecordsByPolicy) {
  put("a.jsonl", "{\"text\": \"one\"}\n{\"text\": 2}\n{\"text\": \"three\"}\noops\n");
  options_.shard_bytes = 10;
  options_.threads = 3;
  const std::string message = error_of(ErrorKind::data, [&] { prepare(); });
  expect_contains(message, "a.jsonl:2: ");  // the first, whichever thread found what
  expect_contains(message, "skip bad records");
  options_.read.bad_records = BadRecords::skip;
  const auto data = prepare();
  EXPECT_EQ(documents_of(*data), (Texts{"one", "three"}));
  EXPECT_EQ(data->report().read.num_bad(), 2);
  EXPECT_EQ(data->report().read.bad.at("broken JSON"), 1);
  expect_contains(data->report().read.bad_examples.at(1), "a.jsonl:4: ");
  // What was skipped once is not passed over in silence later.
  options_.read.bad_records = BadRecords::fail;
  expect_contains(error_of(ErrorKind::data, [&] { prepare(); }), "a.jsonl:2: ");
}

TEST_F(Prepare, TruncatedArchivesNameTheFile) {
  const std::string packed = gzip(std::string(10000, 'a') + "b");
  put("a.txt.gz", packed.substr(0, packed.size() - 9));
  const std::string message = error_of(ErrorKind::data, [&] { prepare(); });
  expect_contains(message, "a.txt.gz: truncated gzip file");
}

TEST_F(Prepare, AFileThatChangesMeanwhileIsRefused) {
  put_lines("a.jsonl", 20);
  TextEncoder encoder = encoder_.get();
  const std::string path = folder_ / "data/a.jsonl", before = real_files().read(path);
  encoder.encode = [&](std::string_view, std::vector<std::int32_t>& tokens) {
    tokens.push_back(1);
    put_file(path, before + "{\"text\": \"more\"}\n");
  };
  const auto sources = find_sources(real_files(), {folder_ / "data"});
  const auto run = [&] { return prepare_data(real_files(), sources, encoder, options_); };
  expect_contains(error_of(ErrorKind::data, [&] { run(); }), "a.jsonl: changed while it was being read");
  EXPECT_TRUE(cache_files().empty());
  encoder.encode = encoder_.get().encode;
  EXPECT_EQ(run()->num_documents(), 21);
}

TEST_F(Prepare, EmptyDataSets) {
  put("a.txt", " \n");
  put("b.jsonl", "{\"text\": \"\"}\n");
  const std::string message = error_of(ErrorKind::data, [&] { prepare(); });
  expect_contains(message, "empty: 2 files");
  expect_contains(message, "2 empty");
  error_of(ErrorKind::data, [&] { prepare_data(real_files(), {}, encoder_.get(), options_); });
  put("a.txt", "");  // no byte at all, and the first file
  expect_contains(error_of(ErrorKind::data, [&] { prepare(); }), "empty: 2 files");
  put("b.jsonl", "{\"text\": \"x\"}\n");
  EXPECT_EQ(documents_of(*prepare()), (Texts{"x"}));
}

TEST_F(Prepare, TextsThatEncodeToNothingAreDropped) {
  put("a.txt", "one##two##three");
  options_.read.separator = "##";
  TextEncoder encoder = encoder_.get();
  encoder.encode = [](std::string_view text, std::vector<std::int32_t>& tokens) {
    if (text != "two") tokens.push_back(5);
  };
  const auto sources = find_sources(real_files(), {folder_ / "data"});
  const auto data = prepare_data(real_files(), sources, encoder, options_);
  EXPECT_EQ(data->num_documents(), 2);
  EXPECT_EQ(data->report().read.empty, 1);
  EXPECT_EQ(data->report().read.text_bytes, 8);
}

TEST_F(Prepare, LongDocumentsAreEncodedInPieces) {
  std::string text;
  Rng rng(2, "lines");
  while (text.size() < 2000000)
    text += std::string(rng.below(200), 'x') + "\n" + (rng.below(2) ? " y" : "Zz");
  put("a.txt", text);
  options_.threads = 2;
  EXPECT_EQ(documents_of(*prepare(real_files(), true)), (Texts{text}));
  EXPECT_GT(encoder_.calls, 4);
  real_files().remove(options_.cache);
  encoder_.calls = 0;
  EXPECT_EQ(documents_of(*prepare()), (Texts{text}));
  EXPECT_EQ(encoder_.calls, 1);
  put("a.txt", std::string(1000000, 'x') + "\n");  // nowhere to cut
  EXPECT_EQ(prepare(real_files(), true)->num_tokens(), 1000002);
}

TEST_F(Prepare, ACacheThatCannotBeMadeIsAClearError) {
  put("a.txt", "text");
  put_file(folder_ / "cache", "a file where the folder should be");
  expect_contains(error_of(ErrorKind::data, [&] { prepare(); }), options_.cache + ": cannot make the folder");
}

}  // namespace
}  // namespace lode
