// Whatever happens to a finished checkpoint is found and named.
#include <gtest/gtest.h>

#include "checkpoint_fixture.h"
#include "core/rng.h"
#include "safetensors_bytes.h"

namespace lode {
namespace {

FileSystem& files = real_files();

class CheckpointDamage : public ::testing::Test {
 protected:
  CheckpointDamage() {
    save_tiny(files, folder_.path(), 1);
    path_ = save_tiny(files, folder_.path(), 2);
  }
  std::string problems() {
    std::string all;
    for (const std::string& problem : verify_checkpoint(files, path_).problems) all += problem + "\n";
    return all;
  }
  // Writes changed contents, looks, and puts the old ones back.
  std::string problems_with(const std::string& name, const std::string& contents) {
    const std::string file = join_path(path_, name), old = files.read(file);
    write_bytes(file, contents);
    std::string found = problems();
    write_bytes(file, old);
    return found;
  }
  std::string manifest_with(std::string_view from, std::string_view to) {
    std::string text = files.read(path_ + "/manifest.json");
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    return problems_with("manifest.json", text);
  }

  TempFolder folder_;
  std::string path_;
};

TEST_F(CheckpointDamage, EveryBitOfTheSmallFilesAndHeadersMatters) {
  for (const std::string& name : files.list(path_)) {
    const std::string old = files.read(join_path(path_, name));
    for (std::size_t i = 0; i < old.size(); ++i) {
      // Every bit of a byte now and then, one bit of each otherwise.
      for (int bit = i % 8; bit < 8; bit += i % 61 == 0 ? 1 : 8) {
        std::string bad = old;
        bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
        ASSERT_NE(problems_with(name, bad), "") << name << " byte " << i << " bit " << bit;
      }
    }
  }
  EXPECT_EQ(problems(), "");
}

TEST_F(CheckpointDamage, TruncationAndTrailingBytesAreFoundAtEveryLength) {
  for (const std::string& name : files.list(path_)) {
    const std::string old = files.read(join_path(path_, name));
    const std::size_t step = std::max<std::size_t>(old.size() / 50, 1);
    for (std::size_t length = 0; length < old.size(); length += step) {
      ASSERT_NE(problems_with(name, old.substr(0, length)), "") << name << " " << length;
    }
    if (name != "manifest.json") {
      EXPECT_NE(problems_with(name, old + " "), "") << name;
    }
  }
}

TEST_F(CheckpointDamage, TheDamagedTensorIsNamedAndTheOlderCheckpointUsed) {
  const std::string file = path_ + "/optimizer.safetensors";
  std::string bytes = files.read(file);
  bytes[bytes.size() - 1] ^= 1;
  write_bytes(file, bytes);
  const std::string found = problems();
  EXPECT_NE(found.find("tensor \"a.bias.exp_avg_sq\" is damaged"), std::string::npos) << found;
  EXPECT_EQ(found.find("exp_avg\""), std::string::npos) << found;
  const LatestCheckpoint latest = find_latest_checkpoint(files, folder_.path());
  ASSERT_TRUE(latest.found);
  EXPECT_EQ(latest.found->step, 1);
  ASSERT_EQ(latest.damaged.size(), 1u);
  EXPECT_EQ(latest.damaged[0].path, path_);
  EXPECT_EQ(check_latest(files, folder_.path()), 1);
}

TEST_F(CheckpointDamage, AllProblemsAreListedAtOnce) {
  files.remove(path_ + "/config.json");
  files.truncate(path_ + "/model.safetensors", 30);
  write_bytes(path_ + "/lode_state.json", "{\"step\": 3}\n");
  const std::string found = problems();
  for (const std::string_view part :
       {"config.json: missing", "model.safetensors: 30 bytes", "lode_state.json"}) {
    EXPECT_NE(found.find(part), std::string::npos) << found;
  }
  EXPECT_EQ(verify_checkpoint(files, path_).good_files.size(), 3u);
}

TEST_F(CheckpointDamage, VersionsAndForeignManifests) {
  EXPECT_NE(manifest_with("\"format_version\": 1", "\"format_version\": 2").find("newer than this program"),
            std::string::npos);
  EXPECT_NE(manifest_with("\"format_version\": 1", "\"format_version\": 0").find("does not exist"),
            std::string::npos);
  EXPECT_NE(manifest_with("\"format_version\": 1", "\"format_version\": \"1\"").find("expected integer"),
            std::string::npos);
  EXPECT_NE(manifest_with("\"step\": 2", "\"step\": 3").find("is of step 3"), std::string::npos);
  EXPECT_NE(manifest_with("xxh3-64", "crc32").find("unknown kind of hash"), std::string::npos);
  EXPECT_NE(manifest_with("\"config.json\"", "\"../config.json\"").find("no name"), std::string::npos);
  EXPECT_NE(manifest_with("\"config.json\"", "\"lost.json\"").find("lost.json: missing"), std::string::npos);
  EXPECT_NE(manifest_with("\"files\"", "\"fails\"").find("\"files\" is missing"), std::string::npos);
  EXPECT_NE(problems_with("manifest.json", "{}"), "");
  EXPECT_NE(problems_with("manifest.json", "[]"), "");
  EXPECT_NE(problems_with("manifest.json", std::string(100000, '[')), "");
  files.remove(path_ + "/manifest.json");
  EXPECT_NE(problems().find("was not finished"), std::string::npos);
  EXPECT_NE(error_of([&] { verify_checkpoint(files, folder_ / "checkpoint-9"); }), "x");
  EXPECT_EQ(verify_checkpoint(files, folder_ / "checkpoint-9").problems.size(), 1u);
}

// Made the fixture of format version 1; to be run again only for a new version, in a folder of its own.
TEST(CheckpointVersions, DISABLED_WriteFixture) {
  save_tiny(files, LODE_TEST_DIR "/io/fixtures", 2);
}

// A checkpoint of format version 1 as it was when that version came out: later programs must go on reading
// it.
TEST(CheckpointVersions, Version1IsRead) {
  const std::string path = LODE_TEST_DIR "/io/fixtures/checkpoint-2";
  const CheckpointReport report = verify_checkpoint(files, path);
  for (const std::string& problem : report.problems) ADD_FAILURE() << problem;
  EXPECT_TRUE(load_tiny(files, path) == TinyState(2));
}

}  // namespace
}  // namespace lode
