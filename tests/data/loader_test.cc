#include "data/loader.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/rng.h"
#include "data/prefetch.h"
#include "data_testing.h"

namespace lode {
namespace {

void expect_equal(const Batch& a, const Batch& b) {
  EXPECT_EQ(a.tokens(), b.tokens());
  EXPECT_EQ(a.labels(), b.labels());
  EXPECT_EQ(a.loss_weight(), b.loss_weight());
  ASSERT_EQ(a.segments().list().size(), b.segments().list().size());
  for (std::size_t i = 0; i < a.segments().list().size(); ++i) {
    EXPECT_EQ(a.segments().list()[i].sample, b.segments().list()[i].sample);
    EXPECT_EQ(a.segments().list()[i].length, b.segments().list()[i].length);
  }
}

void expect_equal(const Step& a, const Step& b) {
  EXPECT_EQ(a.num_targets, b.num_targets);
  EXPECT_EQ(a.num_target_bytes, b.num_target_bytes);
  EXPECT_EQ(a.sample_ids, b.sample_ids);
  EXPECT_EQ(a.epoch, b.epoch);
  ASSERT_EQ(a.micro_batches.size(), b.micro_batches.size());
  for (std::size_t i = 0; i < a.micro_batches.size(); ++i)
    expect_equal(a.micro_batches[i], b.micro_batches[i]);
}

class Loader : public testing::Test {
 protected:
  Loader() {
    Rng rng(4, "documents");
    std::string lines;
    for (int i = 0; i < 100; ++i) {
      std::string text = "document " + std::to_string(i) + ' ';
      for (std::uint64_t n = rng.below(60); n > 0; --n) text += static_cast<char>('a' + rng.below(26));
      texts_.push_back(text);
      lines += Json::object({{"text", text}}).dump() + "\n";
    }
    put_file(folder_ / "a.jsonl", lines);
    PrepareOptions options;
    options.cache = folder_ / "cache";
    options.shard_bytes = 1000;
    data_ = prepare_data(real_files(), find_sources(real_files(), {folder_ / "a.jsonl"}), encoder_.get(),
                         options);
    row_options_.cutoff_len = 96;
    row_options_.bytes_per_token.assign(257, 1);
    row_options_.bytes_per_token[kByteEos] = 0;
  }
  std::shared_ptr<const Rows> rows(Packing packing) {
    row_options_.packing = packing;
    return std::make_shared<const Rows>(make_rows(data_, row_options_).train);
  }
  // The text of each sample of a batch, checked against its labels and weights.
  void collect(const Batch& batch, std::map<std::int64_t, std::string>& samples) {
    EXPECT_EQ(batch.num_tokens() % kTokenMultiple, 0);
    for (const Segment& segment : batch.segments().list()) {
      std::string text;
      for (std::int32_t i = 0; i < segment.length; ++i) {
        const auto at = static_cast<std::size_t>(segment.begin + i);
        const bool labelled = !segment.padding && i + 1 < segment.length;
        EXPECT_EQ(batch.labels()[at], labelled ? batch.tokens()[at + 1] : kIgnoreLabel);
        EXPECT_EQ(batch.loss_weight()[at], labelled ? 1.0f : 0.0f);
        EXPECT_EQ(batch.segments().positions()[at], segment.padding ? 0 : i);
        if (batch.tokens()[at] != kByteEos) text += static_cast<char>(batch.tokens()[at]);
      }
      if (segment.padding) continue;
      EXPECT_TRUE(samples.emplace(segment.sample, text).second);
    }
  }

  TempFolder folder_;
  ByteEncoder encoder_;
  std::vector<std::string> texts_;
  std::shared_ptr<const PreparedData> data_;
  RowOptions row_options_;
};

TEST_F(Loader, AnEpochHoldsEverySampleOnce) {
  for (const Packing packing : {Packing::best_fit, Packing::none}) {
    const StepLoader loader(rows(packing), {3, 2, 3});
    std::map<std::int64_t, std::string> samples;
    std::int64_t targets = 0, bytes = 0;
    for (std::int64_t step = 0; step < loader.num_steps_per_epoch(); ++step) {
      const Step made = loader.make_step(step);
      std::int64_t of_step = 0;
      for (const Batch& batch : made.micro_batches) {
        collect(batch, samples);
        of_step += batch.num_targets();
      }
      EXPECT_EQ(made.num_targets, of_step);
      EXPECT_DOUBLE_EQ(made.epoch,
                       static_cast<double>(step + 1) / static_cast<double>(loader.num_steps_per_epoch()));
      targets += of_step;
      bytes += made.num_target_bytes;
    }
    ASSERT_EQ(samples.size(), texts_.size());
    std::int64_t text_bytes = 0;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      EXPECT_EQ(samples.at(static_cast<std::int64_t>(i)), texts_[i]);
      text_bytes += static_cast<std::int64_t>(texts_[i].size());
    }
    EXPECT_EQ(targets, loader.rows().report().targets);
    EXPECT_EQ(bytes, text_bytes - 100);  // the first byte of each sample is given, not predicted
  }
}

TEST_F(Loader, BlocksRunThroughDocuments) {
  const StepLoader loader(rows(Packing::blocks), {0, 1, 1, false});
  std::map<std::int64_t, std::string> samples;
  for (std::int64_t step = 0; step < loader.num_steps_per_epoch(); ++step) {
    const Step made = loader.make_step(step);
    EXPECT_EQ(made.sample_ids, (std::vector<std::int64_t>{step}));
    collect(made.micro_batches.at(0), samples);
  }
  std::string joined, expected;
  for (const auto& [id, text] : samples) joined += text;
  for (const std::string& text : texts_) expected += text;
  EXPECT_EQ(joined, expected);
}

TEST_F(Loader, TheSplitDoesNotChangeTheStep) {
  for (const Packing packing : {Packing::best_fit, Packing::none, Packing::blocks}) {
    const auto all = rows(packing);
    const StepLoader whole(all, {7, 12, 1});
    for (const std::int64_t micro : {1, 2, 3, 4, 6}) {
      const StepLoader split(all, {7, micro, 12 / micro});
      ASSERT_EQ(split.num_steps_per_epoch(), whole.num_steps_per_epoch());
      for (std::int64_t step = 0; step < 2 * whole.num_steps_per_epoch(); ++step) {
        const Step a = whole.make_step(step), b = split.make_step(step);
        EXPECT_EQ(a.sample_ids, b.sample_ids);
        EXPECT_EQ(a.num_targets, b.num_targets);
        EXPECT_EQ(a.num_target_bytes, b.num_target_bytes);
        std::map<std::int64_t, std::string> of_a, of_b;
        for (const Batch& batch : a.micro_batches) collect(batch, of_a);
        for (const Batch& batch : b.micro_batches) collect(batch, of_b);
        EXPECT_EQ(of_a, of_b);
      }
    }
  }
}

TEST_F(Loader, AnyStepCanBeMadeAgain) {
  const auto all = rows(Packing::best_fit);
  const StepLoader loader(all, {7, 2, 2}), other(all, {7, 2, 2});
  const std::int64_t steps = loader.num_steps_per_epoch();
  std::vector<Step> made;
  for (std::int64_t step = 0; step < 3 * steps; ++step) made.push_back(loader.make_step(step));
  for (std::int64_t step = 3 * steps - 1; step >= 0; --step) {
    expect_equal(made[static_cast<std::size_t>(step)], other.make_step(step));
  }
}

TEST_F(Loader, TheOrderDependsOnSeedAndEpoch) {
  const auto all = rows(Packing::none);
  const auto order = [&](std::uint64_t seed, std::int64_t epoch, bool shuffle = true) {
    const StepLoader loader(all, {seed, 5, 2, shuffle});
    std::vector<std::int64_t> ids;
    for (std::int64_t step = 0; step < 10; ++step) {
      for (const std::int64_t id : loader.make_step(epoch * 10 + step).sample_ids) ids.push_back(id);
    }
    return ids;
  };
  std::set<std::vector<std::int64_t>> orders{order(1, 0), order(1, 1), order(2, 0), order(2, 1),
                                             order(1, 0, false)};
  EXPECT_EQ(orders.size(), 5u);
  EXPECT_EQ(order(1, 0), order(1, 0));
  EXPECT_EQ(order(1, 0, false), order(2, 3, false));
  EXPECT_TRUE(std::ranges::is_sorted(order(1, 0, false)));
}

TEST_F(Loader, TheLastStepMayBeSmaller) {
  const auto all = rows(Packing::none);
  const StepLoader loader(all, {1, 16, 3});
  EXPECT_EQ(loader.num_steps_per_epoch(), 3);
  const Step last = loader.make_step(2);
  EXPECT_EQ(last.sample_ids.size(), 4u);
  EXPECT_EQ(last.micro_batches.size(), 1u);
  EXPECT_EQ(loader.make_step(3).micro_batches.size(), 3u);
  const StepLoader larger(all, {1, 1000, 2});
  EXPECT_EQ(larger.num_steps_per_epoch(), 1);
  EXPECT_EQ(larger.make_step(5).sample_ids.size(), 100u);
}

TEST_F(Loader, EvaluationBatchesHoldEveryRowOnce) {
  const auto all = rows(Packing::none);
  for (const std::int64_t tokens : {1, 100, 500, 1000000}) {
    const EvalBatches batches(all, tokens);
    std::map<std::int64_t, std::string> samples;
    std::int64_t bytes = 0;
    for (std::int64_t i = 0; i < batches.size(); ++i) {
      const EvalBatch made = batches.make(i);
      collect(made.batch, samples);
      bytes += made.num_target_bytes;
      if (tokens >= 100) {
        EXPECT_LE(made.batch.num_tokens(), (tokens + 127) / 128 * 128);
      }
    }
    EXPECT_EQ(samples.size(), 100u);
    EXPECT_GT(bytes, 1000);
    EXPECT_EQ(batches.size() == 1, tokens == 1000000);
    EXPECT_EQ(batches.size() == 100, tokens == 1);
  }
  const Rows none(data_, {}, row_options_, {});
  EXPECT_EQ(EvalBatches(std::make_shared<const Rows>(none), 100).size(), 0);
}

TEST_F(Loader, PrefetchingChangesNothing) {
  const StepLoader loader(rows(Packing::best_fit), {7, 2, 2});
  PrefetchingLoader ahead(loader, 3, 40);
  for (std::int64_t step = 3; step < 40; ++step) expect_equal(ahead.next(), loader.make_step(step));
  const PrefetchCounts counts = ahead.counts();
  EXPECT_EQ(counts.hits + counts.stalls, 37);
  EXPECT_THROW(ahead.next(), Error);
}

TEST_F(Loader, PrefetchingIsBoundedAndStopsEarly) {
  std::atomic<std::int64_t> made{0};
  {
    PrefetchingLoader ahead(
        [&](std::int64_t) {
          ++made;
          return Step();
        },
        0, 1000000);
    ahead.next();
  }
  EXPECT_LE(made, 4);  // handed out, two waiting, one in the making
}

TEST_F(Loader, FailuresOfTheThreadComeOutOfNext) {
  PrefetchingLoader ahead(
      [](std::int64_t step) {
        if (step == 2) throw Error(ErrorKind::data, "a file vanished");
        Step made;
        made.num_targets = step;
        return made;
      },
      0, 10);
  EXPECT_EQ(ahead.next().num_targets, 0);
  EXPECT_EQ(ahead.next().num_targets, 1);
  EXPECT_EQ(error_of(ErrorKind::data, [&] { ahead.next(); }), "a file vanished");
  EXPECT_EQ(error_of(ErrorKind::data, [&] { ahead.next(); }), "a file vanished");
}

}  // namespace
}  // namespace lode
