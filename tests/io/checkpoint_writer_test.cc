#include "io/checkpoint_writer.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "checkpoint_fixture.h"

namespace lode {
namespace {

FileSystem& files = real_files();

// Parameters that a pretended trainer changes while they are being saved.
struct BigState {
  static constexpr int kParameters = 24, kElements = 40'000;
  std::vector<std::vector<float>> values, moments;

  BigState() : values(kParameters, std::vector<float>(kElements, 0)), moments(values) {}
  void update(int p, std::int64_t step) {
    for (float& x : values[static_cast<std::size_t>(p)]) x = static_cast<float>(step);
    for (float& x : moments[static_cast<std::size_t>(p)]) x = -static_cast<float>(step);
  }
  CheckpointContents contents(const std::string& output_dir, std::int64_t step) const {
    CheckpointContents c;
    c.output_dir = output_dir;
    c.step = step;
    c.state["step"] = step;
    for (std::size_t p = 0; p < kParameters; ++p) {
      const TensorSpec spec{format("p{}", p), DType::f32, {kElements}};
      c.model.push_back({spec, view_of(std::span(values[p])), p});
      // A type that is converted goes through the writer's buffer.
      c.optimizer.push_back(
          {{spec.name + ".exp_avg", DType::bf16, {kElements}}, view_of(std::span(moments[p])), p});
    }
    return c;
  }
};

void expect_saved_before_updates(const std::string& path, std::int64_t step) {
  ASSERT_TRUE(verify_checkpoint(files, path).sound());
  const SafetensorsFile model(files, path + "/model.safetensors"),
      optimizer(files, path + "/optimizer.safetensors");
  for (const TensorInfo& info : model.tensors()) {
    const ConstView view = model.view(info);
    for (std::int64_t i = 0; i < view.cols; ++i) ASSERT_EQ(view.row<float>(0)[i], static_cast<float>(step));
  }
  for (const TensorInfo& info : optimizer.tensors()) {
    const ConstView view = optimizer.view(info);
    for (std::int64_t i = 0; i < view.cols; ++i)
      ASSERT_EQ(to_f32(view.row<bf16>(0)[i]), -static_cast<float>(step));
  }
}

TEST(CheckpointWriter, UpdatesWaitForTheirTensors) {
  const TempFolder folder;
  BigState state;
  CheckpointWriter writer(files);
  EXPECT_FALSE(writer.finish());
  EXPECT_EQ(writer.wait_until_written(0), 0);
  for (std::int64_t step = 1; step <= 8; ++step) {
    double stalled = 0;
    for (int p = 0; p < BigState::kParameters; ++p) {
      stalled += writer.wait_until_written(static_cast<std::size_t>(p));
      state.update(p, step);
    }
    const auto saved = writer.finish();
    ASSERT_EQ(saved.has_value(), step > 1);
    if (saved) {
      EXPECT_EQ(saved->step, step - 1);
      EXPECT_EQ(saved->stall_seconds, stalled);
      EXPECT_GT(saved->bytes, std::uint64_t{BigState::kParameters} * BigState::kElements * 6);
      expect_saved_before_updates(saved->path, step - 1);
    }
    writer.begin(state.contents(folder.path(), step));
    EXPECT_TRUE(writer.running());
  }
  std::optional<SavedCheckpoint> saved;
  while (!saved) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    saved = writer.poll();
  }
  EXPECT_EQ(saved->step, 8);
  EXPECT_FALSE(writer.running());
  EXPECT_FALSE(writer.poll());
}

TEST(CheckpointWriter, AFailedSaveLetsTheTrainerGoOnAndIsReportedOnce) {
  const TempFolder folder;
  BigState state;
  for (const std::int64_t n : {1, 3, 5, 20, 50}) {
    FailingFiles failing(files, n, ENOSPC, false);
    CheckpointWriter writer(failing);
    writer.begin(state.contents(folder.path(), 1));
    for (int p = 0; p < BigState::kParameters; ++p) writer.wait_until_written(static_cast<std::size_t>(p));
    EXPECT_EQ(kind_of([&] { writer.finish(); }), ErrorKind::data) << n;
    EXPECT_FALSE(writer.finish());
    EXPECT_TRUE(files.list(folder.path()).empty()) << n;
    writer.begin(state.contents(folder.path(), 2));
    EXPECT_EQ(writer.finish()->step, 2);
    files.remove(folder / "checkpoint-2");
  }
}

TEST(CheckpointWriter, NoSpaceIsSaidAtOnceAndTheDestructorWaits) {
  class SmallDisk : public RecordingFiles {
   public:
    using RecordingFiles::RecordingFiles;
    std::uint64_t free_space(const std::string&) override { return 10; }
  };
  const TempFolder folder;
  BigState state;
  SmallDisk disk(files);
  {
    CheckpointWriter writer(disk);
    EXPECT_EQ(kind_of([&] { writer.begin(state.contents(folder.path(), 1)); }), ErrorKind::data);
    EXPECT_FALSE(writer.running());
    EXPECT_EQ(writer.wait_until_written(0), 0);
  }
  {
    CheckpointWriter writer(files);
    writer.begin(state.contents(folder.path(), 1));
  }
  EXPECT_TRUE(verify_checkpoint(files, folder / "checkpoint-1").sound());
}

}  // namespace
}  // namespace lode
