#include "autograd/capture.h"

#include <gtest/gtest.h>

#include <random>

namespace lode {
namespace {

using Block = std::shared_ptr<Storage>;

// A micro-step that keeps a block of each size until its backward.
void run(GraphCapture* capture, Memory& memory, std::int64_t tokens, const std::vector<std::size_t>& sizes) {
  GraphCapture::MicroStep micro_step(capture, memory, tokens);
  std::vector<Block> kept;
  for (const std::size_t bytes : sizes) kept.push_back(memory.allocate(bytes, MemoryTag::activations));
  while (!kept.empty()) kept.pop_back();
  micro_step.done();
}

struct Said {
  std::vector<std::string> lines;
  GraphCapture capture{[this](const std::string& line) { lines.push_back(line); }};
};

TEST(GraphCapture, ABucketIsRecordedOnceThenReplayed) {
  Memory memory;
  Said said;
  for (int i = 0; i < 4; ++i) {
    run(&said.capture, memory, 128, {1000, 2000, 1 << 20});
    run(&said.capture, memory, 256, {2000, 4000, 2 << 20});
  }
  EXPECT_EQ(said.capture.counts().recorded, 2);
  EXPECT_EQ(said.capture.counts().replayed, 6);
  EXPECT_EQ(said.capture.counts().recorded_again, 0);
  ASSERT_EQ(said.lines.size(), 2u);
  EXPECT_EQ(said.lines[1], "graph: captured a micro-step of 256 tokens: 3 blocks, 2.01 MiB at once");
}

TEST(GraphCapture, AnotherPathIsCapturedAgainAndSaid) {
  Memory memory;
  Said said;
  run(&said.capture, memory, 128, {1000, 2000});
  run(&said.capture, memory, 128, {1000, 3000});
  run(&said.capture, memory, 128, {900, 3000});
  run(&said.capture, memory, 128, {1000, 3000, 50});
  EXPECT_EQ(said.capture.counts().recorded_again, 2);
  EXPECT_EQ(said.capture.counts().replayed, 1);
  ASSERT_EQ(said.lines.size(), 3u);
  EXPECT_NE(said.lines[1].find("again: block 1: 2.93 KiB of activations where 1.95 KiB"), std::string::npos)
      << said.lines[1];
  EXPECT_NE(said.lines[2].find("50 B of activations after the last recorded block"), std::string::npos)
      << said.lines[2];
}

TEST(GraphCapture, LessThanRecordedIsReplayed) {
  Memory memory;
  Said said;
  run(&said.capture, memory, 128, {1000, 2000});
  run(&said.capture, memory, 128, {1000});
  EXPECT_EQ(said.capture.counts().replayed, 1);
}

// No order of places meets what blocks of random sizes and lives hold at once.
TEST(GraphCapture, AnArenaAboveThePeakIsNotUsed) {
  Memory memory;
  Said said;
  const auto scattered = [&] {
    GraphCapture::MicroStep micro_step(&said.capture, memory, 128);
    std::mt19937 random(1);
    std::vector<Block> kept(40);
    for (int i = 0; i < 400; ++i)
      kept[random() % kept.size()] = memory.allocate(64 * (1 + random() % 50), MemoryTag::activations);
    kept.clear();
    micro_step.done();
  };
  scattered();
  const std::size_t peak = memory.use().handed_peak;
  for (int i = 0; i < 2; ++i) scattered();
  EXPECT_EQ(said.capture.counts().dynamic, 2);
  EXPECT_EQ(memory.use().handed_peak, peak);
  ASSERT_EQ(said.lines.size(), 1u);
  EXPECT_NE(said.lines[0].find("128 tokens stay dynamic"), std::string::npos) << said.lines[0];
}

TEST(GraphCapture, WithoutOneNothingHappens) {
  Memory memory;
  run(nullptr, memory, 128, {1000});
  EXPECT_EQ(memory.use().total_current, 0u);
}

TEST(GraphCapture, AFailedMicroStepTeachesNothing) {
  Memory memory;
  Said said;
  { const GraphCapture::MicroStep micro_step(&said.capture, memory, 128); }
  run(&said.capture, memory, 128, {1000});
  EXPECT_EQ(said.capture.counts().recorded, 1);
  EXPECT_EQ(said.capture.counts().replayed, 0);
}

}  // namespace
}  // namespace lode
