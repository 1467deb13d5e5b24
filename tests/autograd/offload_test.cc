#include "autograd/offload.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <optional>

#include "core/file.h"
#include "core/rng.h"
#include "temp_folder.h"

namespace lode {
namespace {

// A scratch file that can be slow or full, and says what it was asked.
struct Scripted {
  std::mutex mutex;
  std::condition_variable changed;
  std::int64_t reads = 0, writes = 0;
  std::int64_t full_after = 1 << 20;  // writes
  bool slow = false;

  void wait_for_reads(std::int64_t count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return reads >= count; });
  }
};

class ScriptedFile : public ScratchFile {
 public:
  ScriptedFile(Scripted& script, const std::string& folder, bool direct)
      : script_(script), folder_(folder), file_(open_scratch(folder, direct)) {}
  void write(std::uint64_t offset, std::span<const std::byte> data) override {
    pause();
    {
      const std::lock_guard lock(script_.mutex);
      if (++script_.writes > script_.full_after) fail_file(folder_, "write to a scratch file", ENOSPC);
    }
    file_->write(offset, data);
  }
  void read(std::uint64_t offset, std::span<std::byte> data) override {
    pause();
    file_->read(offset, data);
    const std::lock_guard lock(script_.mutex);
    ++script_.reads;
    script_.changed.notify_all();
  }
  bool direct() const override { return file_->direct(); }

 private:
  void pause() {
    if (script_.slow) std::this_thread::sleep_for(std::chrono::microseconds(rng_.below(500)));
  }
  Scripted& script_;
  std::string folder_;
  std::unique_ptr<ScratchFile> file_;
  Rng rng_{1, "pauses"};
};

struct OffloadTest : testing::Test {
  TempFolder folder;
  Scripted script;
  Memory memory;
  Facts facts;
  Workspace workspace{memory};
  Context context{.memory = memory, .facts = facts, .kernel = {1, &workspace}};

  Offload make(OffloadBuffers buffers) {
    return Offload(folder.path(), buffers, [this](const std::string& path, bool direct) {
      return std::make_unique<ScriptedFile>(script, path, direct);
    });
  }
  Tensor filled(float value, std::int64_t rows, std::int64_t cols) {
    Tensor out = context.activation(rows, cols);
    for (std::int64_t r = 0; r < rows; ++r) std::fill_n(out.view().row<float>(r), cols, value);
    return out;
  }
  std::size_t activations() const {
    return memory.use().current[static_cast<std::size_t>(MemoryTag::activations)];
  }
};

constexpr OffloadBuffers kAll[] = {OffloadBuffers::none, OffloadBuffers::one, OffloadBuffers::two};

TEST_F(OffloadTest, GivesBackWhatItTook) {
  for (const OffloadBuffers buffers : kAll) {
    for (const bool slow : {false, true}) {
      script.slow = slow;
      Offload offload(make(buffers));
      for (int round = 0; round < 3; ++round) {
        std::vector<std::optional<Saved>> saved;
        // Of many sizes, some large enough for direct I/O, and not of whole pages.
        for (int i = 0; i < 9; ++i)
          saved.emplace_back(offload.put(filled(static_cast<float>(10 * round + i), 3 + 251 * (i % 4), 513)));
        for (int i = 8; i >= 0; --i) {
          auto& last = saved[static_cast<std::size_t>(i)];
          const Tensor& tensor = last->get(context);
          ASSERT_EQ(tensor.rows(), 3 + 251 * (i % 4));
          for (const std::int64_t row : {std::int64_t{0}, tensor.rows() - 1}) {
            EXPECT_EQ(tensor.view().row<float>(row)[0], 10 * round + i);
            EXPECT_EQ(tensor.view().row<float>(row)[512], 10 * round + i);
          }
          last.reset();
        }
      }
      EXPECT_EQ(offload.counts().written, 27);
      EXPECT_GT(offload.counts().read, 18);
    }
  }
  EXPECT_EQ(activations(), 0u);
}

TEST_F(OffloadTest, MemoryDoesNotGrowWithTheNumberOfTensors) {
  constexpr std::int64_t kRows = 512, kCols = 512;  // 1 MiB
  for (const OffloadBuffers buffers : kAll) {
    for (const int count : {6, 24}) {
      Offload offload(make(buffers));
      memory.reset_peak();
      std::vector<Saved> saved;
      for (int i = 0; i < count; ++i) saved.push_back(offload.put(filled(1, kRows, kCols)));
      for (; !saved.empty(); saved.pop_back()) saved.back().get(context);
      const std::size_t slots = buffers == OffloadBuffers::two ? 2 : 1;
      // And the tensor that is being made.
      EXPECT_LE(memory.use().peak[static_cast<std::size_t>(MemoryTag::activations)], (slots + 1) << 20);
    }
  }
}

TEST_F(OffloadTest, ReadsOneAheadWithTwoBuffers) {
  Offload offload(make(OffloadBuffers::two));
  std::vector<Saved> saved;
  for (int i = 0; i < 6; ++i) saved.push_back(offload.put(filled(static_cast<float>(i), 4, 4)));
  // The last two never left memory; asking for the second of them brings the one before.
  saved.back().get(context);
  saved.pop_back();
  EXPECT_EQ(offload.counts().read, 0);
  saved.back().get(context);
  script.wait_for_reads(1);
  saved.pop_back();
  EXPECT_EQ(saved.back().get(context).view().row<float>(0)[0], 3);
  script.wait_for_reads(2);
  EXPECT_EQ(offload.counts().read, 2);
}

TEST_F(OffloadTest, WithOneBufferReadsWhenItIsFree) {
  Offload offload(make(OffloadBuffers::one));
  std::vector<Saved> saved;
  for (int i = 0; i < 4; ++i) saved.push_back(offload.put(filled(static_cast<float>(i), 4, 4)));
  saved.back().get(context);
  EXPECT_EQ(offload.counts().read, 0);
  saved.pop_back();
  EXPECT_EQ(offload.counts().read, 1);
  script.wait_for_reads(1);
}

TEST_F(OffloadTest, AGroupComesBackTogetherAndTakesATensorOnce) {
  for (const OffloadBuffers buffers : kAll) {
    Offload offload(make(buffers));
    std::vector<std::vector<Saved>> groups;
    for (int g = 0; g < 5; ++g) {
      const OffloadedOps ops(context, offload);
      std::vector<Saved>& group = groups.emplace_back();
      for (int i = 0; i < 3; ++i)
        group.push_back(save(context, filled(static_cast<float>(10 * g + i), 4, 4)));
      const Tensor shared = filled(static_cast<float>(10 * g + 3), 4, 4);
      for (int i = 0; i < 2; ++i) group.push_back(save(context, shared));
    }
    EXPECT_EQ(context.offload, nullptr);
    EXPECT_EQ(offload.counts().written, 5 * 4);
    for (int g = 4; g >= 0; --g) {
      std::vector<Saved>& group = groups.back();
      for (int i = 4; i >= 0; --i) {
        EXPECT_EQ(group.back().get(context).view().row<float>(0)[0], 10 * g + std::min(i, 3));
        group.pop_back();
      }
      groups.pop_back();
      // The group before is asked for at the first use, or when the buffer is free.
      if (g == (buffers == OffloadBuffers::two ? 3 : 4) && buffers != OffloadBuffers::none) {
        EXPECT_EQ(offload.counts().read, 4);
      }
    }
    EXPECT_EQ(offload.counts().read, (buffers == OffloadBuffers::two ? 3 : 4) * 4);
  }
  EXPECT_EQ(activations(), 0u);
}

TEST_F(OffloadTest, MemoryDoesNotGrowWithTheNumberOfGroups) {
  constexpr std::int64_t kRows = 512, kCols = 512;  // 1 MiB
  for (const OffloadBuffers buffers : kAll) {
    for (const int count : {4, 16}) {
      Offload offload(make(buffers));
      memory.reset_peak();
      std::vector<Saved> saved;
      for (int g = 0; g < count; ++g) {
        const OffloadedOps ops(context, offload);
        for (int i = 0; i < 3; ++i) saved.push_back(save(context, filled(1, kRows, kCols)));
      }
      for (; !saved.empty(); saved.pop_back()) saved.back().get(context);
      const std::size_t slots = buffers == OffloadBuffers::two ? 2 : 1;
      // And the tensor that a transfer under way still holds.
      EXPECT_LE(memory.use().peak[static_cast<std::size_t>(MemoryTag::activations)], (3 * slots + 1) << 20);
    }
  }
}

TEST_F(OffloadTest, SynchronousTransfersAreAllStalls) {
  Offload offload(make(OffloadBuffers::none));
  std::vector<Saved> saved;
  for (int i = 0; i < 4; ++i) saved.push_back(offload.put(filled(1, 4, 4)));
  for (; !saved.empty(); saved.pop_back()) saved.back().get(context);
  EXPECT_EQ(offload.counts().stalls, 8);
  EXPECT_GT(offload.counts().time_stalled, 0);
}

TEST_F(OffloadTest, AFullDiskSaysWhereAndWhatToDo) {
  for (const OffloadBuffers buffers : kAll) {
    script.writes = 0;
    script.full_after = 2;
    Offload offload(make(buffers));
    std::vector<Saved> saved;
    const std::string error = error_of([&] {
      for (int i = 0; i < 6; ++i) saved.push_back(offload.put(filled(1, 4, 4)));
    });
    EXPECT_NE(error.find("offload_dir: " + folder.path()), std::string::npos) << error;
    EXPECT_NE(error.find("No space left on device"), std::string::npos) << error;
    EXPECT_NE(error.find("activation_policy: recompute"), std::string::npos) << error;
    // It goes on from there when the disk has room again.
    saved.clear();
    script.full_after = 1 << 20;
    const Saved again = offload.put(filled(7, 4, 4));
    EXPECT_EQ(again.get(context).view().row<float>(0)[0], 7);
  }
}

TEST_F(OffloadTest, WhatIsDroppedUnreadIsForgotten) {
  for (const OffloadBuffers buffers : kAll) {
    Offload offload(make(buffers));
    {
      std::vector<Saved> saved;
      for (int i = 0; i < 5; ++i) saved.push_back(offload.put(filled(1, 4, 4)));
    }
    EXPECT_EQ(offload.counts().read, 0);
    const Saved saved = offload.put(filled(2, 4, 4));
    EXPECT_EQ(saved.get(context).view().row<float>(0)[0], 2);
  }
}

}  // namespace
}  // namespace lode
