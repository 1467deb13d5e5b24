#include "data/rows.h"

#include <algorithm>
#include <limits>
#include <set>

#include "core/rng.h"
#include "data_testing.h"

namespace lode {
namespace {

class RowsTest : public testing::Test {
 protected:
  // Documents of the given lengths in tokens, their end included.
  std::shared_ptr<const PreparedData> data_of(const std::vector<int>& lengths) {
    std::string text;
    for (const int length : lengths) {
      text += Json::object({{"text", std::string(static_cast<std::size_t>(length - 1), 'x')}}).dump() + "\n";
    }
    put_file(folder_ / "a.jsonl", text);
    PrepareOptions options;
    options.cache = folder_ / "cache";
    return prepare_data(real_files(), find_sources(real_files(), {folder_ / "a.jsonl"}), encoder_.get(),
                        options);
  }
  static std::vector<std::vector<std::int32_t>> lengths_of(const Rows& rows) {
    std::vector<std::vector<std::int32_t>> all;
    for (std::int64_t row = 0; row < rows.size(); ++row) {
      auto& lengths = all.emplace_back();
      for (const Sample& sample : rows.samples(row)) lengths.push_back(sample.length);
    }
    return all;
  }
  static std::vector<std::int64_t> ids_of(const Rows& rows) {
    std::vector<std::int64_t> ids;
    for (std::int64_t row = 0; row < rows.size(); ++row) {
      for (const Sample& sample : rows.samples(row)) ids.push_back(sample.id);
    }
    return ids;
  }
  using Lengths = std::vector<std::vector<std::int32_t>>;

  TempFolder folder_;
  ByteEncoder encoder_;
  RowOptions options_;
};

TEST_F(RowsTest, BestFit) {
  options_.cutoff_len = 10;
  const RowSets sets = make_rows(data_of({8, 6, 4, 3, 2, 2}), options_);
  EXPECT_EQ(lengths_of(sets.train), (Lengths{{8, 2}, {6, 4}, {3, 2}}));
  EXPECT_EQ(ids_of(sets.train), (std::vector<std::int64_t>{0, 4, 1, 2, 3, 5}));
  EXPECT_EQ(sets.held_out.size(), 0);
  const PackingReport& report = sets.train.report();
  EXPECT_EQ(report.documents, 6);
  EXPECT_EQ(report.samples, 6);
  EXPECT_EQ(report.rows, 3);
  EXPECT_EQ(report.tokens, 25);
  EXPECT_EQ(report.targets, 19);
  EXPECT_EQ(report.longest, 8);
  EXPECT_DOUBLE_EQ(report.density, 25.0 / 30);
  EXPECT_DOUBLE_EQ(report.tokens_per_byte, 25.0 / 19);
  expect_contains(report.lines("train").at(0), "train: 6 documents, 25 tokens in 3 rows, 83.3 % full");
  EXPECT_EQ(report.to_json().at("rows").as_int(), 3);
}

TEST_F(RowsTest, LongDocumentsByPolicy) {
  const auto data = data_of({25, 4, 11, 21});
  options_.cutoff_len = 10;
  options_.packing = Packing::none;

  options_.too_long = TooLong::truncate;
  const Rows truncated = make_rows(data, options_).train;
  EXPECT_EQ(lengths_of(truncated), (Lengths{{10}, {4}, {10}, {10}}));
  EXPECT_EQ(ids_of(truncated), (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(truncated.report().truncated, 3);
  EXPECT_EQ(truncated.report().truncated_tokens, 15 + 1 + 11);
  expect_contains(truncated.report().lines("x").at(1), "3 documents truncated to cutoff_len, 27 tokens");

  options_.too_long = TooLong::drop;
  const Rows dropped = make_rows(data, options_).train;
  EXPECT_EQ(lengths_of(dropped), (Lengths{{4}}));
  EXPECT_EQ(ids_of(dropped), (std::vector<std::int64_t>{1}));
  EXPECT_EQ(dropped.report().dropped.at("longer than cutoff_len"), 3);

  options_.too_long = TooLong::split;
  const Rows split = make_rows(data, options_).train;
  EXPECT_EQ(lengths_of(split),
            (Lengths{{10}, {10}, {5}, {4}, {10}, {10}, {10}}));  // single tokens have no target
  EXPECT_EQ(ids_of(split), (std::vector<std::int64_t>{0, 1, 2, 3, 4, 6, 7}));
  EXPECT_EQ(split.report().split, 3);
  EXPECT_EQ(split.report().longest, 25);

  std::set<std::string> prints{truncated.fingerprint(), dropped.fingerprint(), split.fingerprint()};
  EXPECT_EQ(prints.size(), 3u);
  EXPECT_EQ(make_rows(data, options_).train.fingerprint(), split.fingerprint());
}

TEST_F(RowsTest, Blocks) {
  options_.cutoff_len = 8;
  options_.packing = Packing::blocks;
  const Rows rows = make_rows(data_of({5, 5, 8}), options_).train;
  EXPECT_EQ(lengths_of(rows), (Lengths{{8}, {8}, {2}}));
  EXPECT_EQ(rows.samples(1)[0].begin, 8);
  EXPECT_EQ(rows.report().targets, 15);
  EXPECT_EQ(rows.report().documents, 3);
  EXPECT_EQ(lengths_of(make_rows(data_of({5, 4}), options_).train), (Lengths{{8}}));  // one token left over
  EXPECT_EQ(lengths_of(make_rows(data_of({3}), options_).train), (Lengths{{3}}));
}

TEST_F(RowsTest, TheLastBlocksAreHeldOut) {
  options_.cutoff_len = 8;
  options_.packing = Packing::blocks;
  const auto data = data_of({50, 30});
  for (const double val_size : {0.3, 3.0}) {
    const RowSets sets = make_rows(data, options_, val_size);
    EXPECT_EQ(ids_of(sets.train), (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(ids_of(sets.held_out), (std::vector<std::int64_t>{7, 8, 9}));
    EXPECT_EQ(sets.held_out.samples(0)[0].begin, 56);
    EXPECT_EQ(sets.train.report().tokens, 56);
  }
  EXPECT_EQ(make_rows(data, options_, 0.001).held_out.size(), 1);  // never none
}

TEST_F(RowsTest, DocumentsAreHeldOutBySeed) {
  const auto data = data_of(std::vector<int>(200, 5));
  options_.cutoff_len = 16;
  const RowSets a = make_rows(data, options_, 0.1, 1), again = make_rows(data, options_, 20, 1);
  EXPECT_EQ(a.held_out.report().documents, 20);
  EXPECT_EQ(ids_of(a.held_out), ids_of(again.held_out));
  EXPECT_NE(ids_of(a.held_out), ids_of(make_rows(data, options_, 0.1, 2).held_out));
  std::vector<std::int64_t> all = ids_of(a.train);
  for (const std::int64_t id : ids_of(a.held_out)) all.push_back(id);
  std::ranges::sort(all);
  for (std::int64_t i = 0; i < 200; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)], i);
  // The choice does not depend on the packing.
  options_.packing = Packing::none;
  std::vector<std::int64_t> unpacked = ids_of(make_rows(data, options_, 0.1, 1).held_out),
                            packed = ids_of(a.held_out);
  std::ranges::sort(packed);
  EXPECT_EQ(unpacked, packed);
}

TEST_F(RowsTest, Refusals) {
  const auto data = data_of({5, 5});
  const auto refuse = [&](double val_size) {
    return error_of(ErrorKind::usage, [&] { make_rows(data, options_, val_size); });
  };
  expect_contains(refuse(2), "leaves none to train on");
  expect_contains(refuse(0.9), "leaves none to train on");
  expect_contains(refuse(1.5), "whole number of documents");
  expect_contains(refuse(-0.1), "0 or more");
  refuse(std::numeric_limits<double>::quiet_NaN());
  refuse(std::numeric_limits<double>::infinity());
  options_.cutoff_len = 1;
  expect_contains(refuse(0), "cutoff_len must be at least 2");
  options_.cutoff_len = 4;
  options_.too_long = TooLong::drop;
  const std::string message = error_of(ErrorKind::data, [&] { make_rows(data, options_); });
  expect_contains(message,
                  "no sample to train on: 2 documents, 10 tokens; 2 documents: longer than cutoff_len");
}

TEST_F(RowsTest, RandomPackingsLoseNothing) {
  Rng rng(9, "rows");
  for (int round = 0; round < 20; ++round) {
    std::vector<int> lengths;
    std::int64_t total = 0;
    for (std::uint64_t n = 1 + rng.below(200); n > 0; --n) {
      lengths.push_back(static_cast<int>(2 + rng.below(60)));
      total += lengths.back();
    }
    options_.cutoff_len = static_cast<std::int32_t>(2 + rng.below(80));
    options_.too_long = TooLong::split;
    const auto data = data_of(lengths);
    for (const Packing packing : {Packing::best_fit, Packing::none, Packing::blocks}) {
      options_.packing = packing;
      const Rows rows = make_rows(data, options_).train;
      std::vector<int> covered(static_cast<std::size_t>(total), 0);
      std::int64_t tokens = 0;
      for (std::int64_t row = 0; row < rows.size(); ++row) {
        EXPECT_LE(rows.num_tokens(row), options_.cutoff_len);
        tokens += rows.num_tokens(row);
        for (const Sample& sample : rows.samples(row)) {
          EXPECT_GE(sample.length, 2);
          for (std::int32_t i = 0; i < sample.length; ++i)
            ++covered[static_cast<std::size_t>(sample.begin + i)];
        }
      }
      EXPECT_EQ(tokens, rows.report().tokens);
      EXPECT_TRUE(std::ranges::all_of(covered, [](int n) { return n <= 1; }));
      // Only single left-over tokens may be missing.
      const auto missing = std::ranges::count(covered, 0);
      EXPECT_LE(missing, packing == Packing::blocks ? 1 : rows.report().split);
      EXPECT_EQ(total - tokens, missing);
    }
  }
}

}  // namespace
}  // namespace lode
