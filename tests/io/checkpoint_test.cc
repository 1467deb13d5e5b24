#include "io/checkpoint.h"

#include <gtest/gtest.h>

#include "checkpoint_fixture.h"
#include "safetensors_bytes.h"

namespace lode {
namespace {

FileSystem& files = real_files();

std::vector<std::int64_t> steps_in(const std::string& folder) {
  std::vector<std::int64_t> steps;
  for (const FoundCheckpoint& found : list_checkpoints(files, folder)) steps.push_back(found.step);
  return steps;
}

TEST(Checkpoint, SavesWhatHuggingFaceExpectsAndLoads) {
  const TempFolder folder;
  const std::string path = save_tiny(files, folder.path(), 10);
  EXPECT_EQ(path, folder / "checkpoint-10");
  EXPECT_EQ(files.list(folder.path()), std::vector<std::string>{"checkpoint-10"});
  EXPECT_EQ(files.list(path),
            (std::vector<std::string>{"config.json", "empty.txt", "lode_state.json", "manifest.json",
                                      "model.safetensors", "optimizer.safetensors", "trainer_state.json"}));
  const CheckpointReport report = verify_checkpoint(files, path, 2);
  EXPECT_TRUE(report.sound());
  EXPECT_EQ(report.step, 10);
  EXPECT_EQ(report.good_files.size(), 6u);
  EXPECT_EQ(check_latest(files, folder.path()), 10);
  // In the order of updates.
  EXPECT_EQ(SafetensorsFile(files, path + "/model.safetensors").tensors()[0].name, "z.weight");
}

TEST(Checkpoint, WithoutOptimizerState) {
  const TempFolder folder;
  const TinyState state(1);
  CheckpointContents contents = tiny_contents(folder.path(), 1, state);
  contents.optimizer.clear();
  const std::string path = save_checkpoint(files, contents);
  EXPECT_FALSE(files.exists(path + "/optimizer.safetensors"));
  EXPECT_TRUE(verify_checkpoint(files, path).sound());
}

TEST(Checkpoint, AnAdapterInsteadOfAModel) {
  const TempFolder folder;
  const TinyState state(1);
  CheckpointContents contents = tiny_contents(folder.path(), 1, state);
  contents.adapter = true;
  const std::string path = save_checkpoint(files, contents);
  EXPECT_FALSE(files.exists(path + "/model.safetensors"));
  EXPECT_EQ(SafetensorsFile(files, path + "/adapter_model.safetensors").tensors().size(), 3u);
  EXPECT_TRUE(verify_checkpoint(files, path).sound());
  files.truncate(path + "/adapter_model.safetensors", 30);
  EXPECT_FALSE(verify_checkpoint(files, path).sound());
}

TEST(Checkpoint, StepsOrderByNumberAndOddNamesAreLeftAlone) {
  const TempFolder folder;
  for (const std::int64_t step : {100, 9, 20}) save_tiny(files, folder.path(), step);
  for (const std::string_view name :
       {"checkpoint-", "checkpoint-7x", "checkpoint-007", "checkpoint--5", "other"}) {
    files.make_directory(folder / name);
  }
  write_bytes(folder / "checkpoint-500", "a file");
  EXPECT_EQ(steps_in(folder.path()), (std::vector<std::int64_t>{9, 20, 100}));
  EXPECT_EQ(check_latest(files, folder.path()), 100);
  EXPECT_TRUE(list_checkpoints(files, folder / "absent").empty());
}

TEST(Checkpoint, ReplacesOneOfTheSameStep) {
  const TempFolder folder;
  save_tiny(files, folder.path(), 5);
  write_bytes(folder / "checkpoint-5/model.safetensors", "damage");
  save_tiny(files, folder.path(), 5);
  EXPECT_EQ(check_latest(files, folder.path()), 5);
  EXPECT_EQ(files.list(folder.path()).size(), 1u);
}

TEST(Checkpoint, RefusesOurOwnMistakes) {
  const TempFolder folder;
  const TinyState state(1);
  for (const std::string_view name :
       {"../x", "a/b", "", ".", "manifest.json", "model.safetensors", "config.json"}) {
    CheckpointContents contents = tiny_contents(folder.path(), 1, state);
    contents.files.emplace_back(name, "x");
    EXPECT_EQ(kind_of([&] { save_checkpoint(files, contents); }), ErrorKind::internal) << name;
  }
  CheckpointContents contents = tiny_contents(folder.path(), 1, state);
  std::swap(contents.model[0], contents.model[1]);
  EXPECT_EQ(kind_of([&] { save_checkpoint(files, contents); }), ErrorKind::internal);
  EXPECT_TRUE(files.list(folder.path()).empty());
}

class SmallDisk : public RecordingFiles {
 public:
  using RecordingFiles::RecordingFiles;
  std::uint64_t free_space(const std::string&) override { return 1000; }
};

TEST(Checkpoint, SpaceIsCheckedFirst) {
  const TempFolder folder;
  SmallDisk disk(files);
  const std::string message = error_of([&] { save_tiny(disk, folder.path(), 3); });
  EXPECT_NE(message.find("1000 bytes) left"), std::string::npos) << message;
  EXPECT_NE(message.find("a checkpoint needs"), std::string::npos) << message;
  EXPECT_TRUE(disk.events().empty());
}

TEST(Checkpoint, PruningKeepsTheNewestAndTheBest) {
  const TempFolder folder;
  for (std::int64_t step = 1; step <= 6; ++step) save_tiny(files, folder.path(), step);
  EXPECT_TRUE(prune_checkpoints(files, folder.path(), 0).empty());
  EXPECT_TRUE(prune_checkpoints(files, folder.path(), 6).empty());
  EXPECT_EQ(prune_checkpoints(files, folder.path(), 4, 1).size(), 2u);
  EXPECT_EQ(steps_in(folder.path()), (std::vector<std::int64_t>{1, 4, 5, 6}));
  prune_checkpoints(files, folder.path(), 1, 4);
  EXPECT_EQ(steps_in(folder.path()), (std::vector<std::int64_t>{4, 6}));
  prune_checkpoints(files, folder.path(), 1);
  EXPECT_EQ(steps_in(folder.path()), (std::vector<std::int64_t>{6}));
  EXPECT_EQ(files.list(folder.path()).size(), 1u);
}

TEST(Checkpoint, DamagedOnesDoNotPushOutSoundOnes) {
  const TempFolder folder;
  for (std::int64_t step = 1; step <= 3; ++step) save_tiny(files, folder.path(), step);
  files.truncate(folder / "checkpoint-3/model.safetensors", 20);
  prune_checkpoints(files, folder.path(), 1);
  EXPECT_EQ(steps_in(folder.path()), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(check_latest(files, folder.path()), 2);
}

TEST(Checkpoint, LeftoversAreCleanedAndAReplacedOneReturns) {
  const TempFolder folder;
  save_tiny(files, folder.path(), 4);
  save_tiny(files, folder.path(), 8);
  files.rename(folder / "checkpoint-8", folder / ".tmp-replaced-checkpoint-8");
  files.make_directory(folder / ".tmp-checkpoint-9");
  files.make_directory(folder / ".tmp-removed-checkpoint-1");
  files.make_directory(folder / ".tmp-replaced-checkpoint-4");
  files.make_directory(folder / ".tmp-of-somebody-else");
  clean_leftovers(files, folder.path());
  EXPECT_EQ(files.list(folder.path()),
            (std::vector<std::string>{".tmp-of-somebody-else", "checkpoint-4", "checkpoint-8"}));
  EXPECT_EQ(check_latest(files, folder.path()), 8);
  clean_leftovers(files, folder / "absent");
}

TEST(Checkpoint, FsckTakesOneFolderOrAll) {
  const TempFolder folder;
  EXPECT_EQ(kind_of([&] { check_checkpoints(files, folder.path()); }), ErrorKind::data);
  EXPECT_NE(error_of([&] { check_checkpoints(files, folder / "absent"); }).find("no such folder"),
            std::string::npos);
  save_tiny(files, folder.path(), 1);
  save_tiny(files, folder.path(), 2);
  files.remove(folder / "checkpoint-1/config.json");
  const auto all = check_checkpoints(files, folder.path());
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].problems, std::vector<std::string>{"config.json: missing"});
  EXPECT_TRUE(all[1].sound());
  EXPECT_TRUE(check_checkpoints(files, folder / "checkpoint-2/")[0].sound());
}

}  // namespace
}  // namespace lode
