#include "data/shard.h"

#include <cerrno>
#include <cmath>
#include <cstring>

#include "data/digest.h"
#include "data_testing.h"

namespace lode {
namespace {

ShardContents example() {
  ShardContents contents;
  contents.tokens = {1, 2, 3, 299, 0, 7};
  contents.lengths = {4, 2};
  contents.text_bytes = {11, 5};
  contents.origins = {{0, 1}, {1, 7}};
  contents.weights = {{1, 0.0f}, {3, 1.0f}, {6, 0.5f}};
  contents.report.documents = 2;
  contents.report.text_bytes = 16;
  contents.report.bad["broken JSON"] = 1;
  contents.num_records = 3;
  contents.last = true;
  return contents;
}

class Shards : public testing::Test {
 protected:
  std::string refusal(std::int32_t vocab_size = 300) {
    return error_of(ErrorKind::data, [&] { Shard(real_files(), path_, vocab_size); });
  }

  TempFolder folder_;
  std::string path_ = folder_ / "a.shard";
};

TEST_F(Shards, RoundTripInBothWidths) {
  for (const std::int32_t vocab_size : {300, 65535, 65536, 200000}) {
    write_shard(real_files(), path_, example(), vocab_size);
    const Shard shard(real_files(), path_, vocab_size);
    EXPECT_EQ(shard.num_documents(), 2);
    EXPECT_EQ(shard.num_tokens(), 6);
    EXPECT_EQ(shard.num_records(), 3);
    EXPECT_TRUE(shard.last());
    EXPECT_EQ(shard.ends()[0], 4u);
    EXPECT_EQ(shard.ends()[1], 6u);
    EXPECT_EQ(shard.text_bytes()[1], 5u);
    EXPECT_EQ(shard.origins()[1].file, 1u);
    EXPECT_EQ(shard.origins()[1].line, 7u);
    std::vector<float> weights(4);
    shard.copy_weights(0, 4, weights.data());
    EXPECT_EQ(weights, (std::vector<float>{0, 1, 1, 0.5f}));
    shard.copy_weights(3, 3, weights.data());
    EXPECT_EQ(weights[2], 0.5f);
    EXPECT_EQ(shard.report().to_json(), example().report.to_json());
    std::vector<std::int32_t> tokens(4);
    shard.copy(1, 4, tokens.data());
    EXPECT_EQ(tokens, (std::vector<std::int32_t>{2, 3, 299, 0}));
    EXPECT_EQ(real_files().list(folder_.path()).size(), 1u);
  }
}

TEST_F(Shards, Empty) {
  write_shard(real_files(), path_, {}, 300);
  const Shard shard(real_files(), path_, 300);
  EXPECT_EQ(shard.num_documents(), 0);
  EXPECT_FALSE(shard.last());
}

TEST_F(Shards, EveryFlippedByteAndEveryLengthIsFound) {
  write_shard(real_files(), path_, example(), 300);
  const std::string good = real_files().read(path_);
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    put_file(path_, bad);
    expect_contains(refusal(), path_);
    put_file(path_, good.substr(0, i));
    expect_contains(refusal(), path_);
  }
  put_file(path_, good + "x");
  refusal();
  put_file(path_, good);
  EXPECT_EQ(Shard(real_files(), path_, 300).num_tokens(), 6);
  expect_contains(refusal(299), "beyond the vocabulary");
  expect_contains(refusal(70000), "width");
}

// Headers whose hashes fit but whose counts lie.
TEST_F(Shards, HostileCountsAreRefused) {
  write_shard(real_files(), path_, example(), 300);
  const std::string good = real_files().read(path_);
  const std::uint64_t values[] = {0,          1,          7,     1u << 20,  1ull << 60,
                                  1ull << 62, 1ull << 63, ~0ull, ~0ull - 7, ~0ull / 2 + 1};
  for (std::size_t field = 2; field < 8; ++field) {  // token_bytes .. num_runs
    for (const std::uint64_t value : values) {
      if (field == 5 && value <= (1ull << 62)) continue;  // any number of records may be true
      std::string bad = good;
      std::memcpy(bad.data() + field * 8, &value, 8);
      const std::uint64_t hash = hash64(std::as_bytes(std::span(bad)).first(80));
      std::memcpy(bad.data() + 80, &hash, 8);
      put_file(path_, bad);
      expect_contains(refusal(), path_);
    }
  }
}

TEST_F(Shards, BoundsOutOfOrderAreRefused) {
  ShardContents contents = example();
  for (const std::vector<std::int64_t>& lengths : {std::vector<std::int64_t>{0, 6}, {6, 0}, {7, -1}}) {
    contents.lengths = lengths;
    write_shard(real_files(), path_, contents, 300);
    expect_contains(refusal(), "out of order");
  }
}

TEST_F(Shards, BadWeightsAreRefused) {
  using Runs = std::vector<WeightRun>;
  ShardContents contents = example();
  for (const Runs& runs :
       {Runs{{3, 1}, {3, 0}, {6, 1}}, Runs{{6, -1}}, Runs{{6, NAN}}, Runs{{5, 1}}, Runs{{7, 1}}}) {
    contents.weights = runs;
    write_shard(real_files(), path_, contents, 300);
    expect_contains(refusal(), "weights");
  }
}

TEST_F(Shards, FailedWritesLeaveNothingBehind) {
  write_shard(real_files(), path_, example(), 300);
  const std::string good = real_files().read(path_);
  for (std::int64_t n = 1;; ++n) {
    FailingFiles failing(real_files(), n, ENOSPC, false);
    try {
      write_shard(failing, path_, example(), 300);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data);
      EXPECT_EQ(real_files().list(folder_.path()).size(), 1u);
      EXPECT_EQ(real_files().read(path_), good);
      continue;
    }
    EXPECT_EQ(n, failing.calls() + 1);
    break;
  }
}

}  // namespace
}  // namespace lode
