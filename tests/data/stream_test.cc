#include "data/stream.h"

#include <algorithm>

#include "core/rng.h"
#include "data_testing.h"

namespace lode {
namespace {

using Blocks = std::vector<std::vector<std::int32_t>>;

class Stream : public testing::Test {
 protected:
  Stream() {
    options_.cutoff_len = 48;
    options_.bytes_per_token.assign(257, 1);
    options_.bytes_per_token[kByteEos] = 0;
  }
  // Documents of 2 to 150 tokens: some blocks hold several, some documents several blocks.
  std::string lines(int count, std::uint64_t seed) {
    Rng rng(seed, "documents");
    std::string lines;
    for (int i = 0; i < count; ++i) {
      std::string text = "d";
      for (std::uint64_t n = rng.below(i % 5 == 0 ? 150 : 30); n > 0; --n)
        text += static_cast<char>('a' + rng.below(26));
      lines += Json::object({{"text", text}}).dump() + "\n";
      if (i % 4 == 0) lines += "{\"text\": \" \"}\n\n";  // dropped, and no record at all
    }
    return lines;
  }
  void put_three() {
    put_file(folder_ / "data/a.jsonl", lines(20, 1));
    put_file(folder_ / "data/b.jsonl.gz", gzip(lines(15, 2)));
    put_file(folder_ / "data/c.txt", "the last document, a text of its own");
  }
  StreamLoader open(std::int64_t rows = 1, std::int64_t micro_batches = 1) {
    StreamOptions options = options_;
    options.rows_per_micro_batch = rows;
    options.micro_batches_per_step = micro_batches;
    return {real_files(), find_sources(real_files(), {folder_ / "data"}), encoder_.get(), options};
  }
  // The blocks of the same files, prepared.
  Blocks prepared(std::int64_t& target_bytes) {
    PrepareOptions options;
    options.cache = folder_ / "cache";
    options.read = options_.read;
    const auto data =
        prepare_data(real_files(), find_sources(real_files(), {folder_ / "data"}), encoder_.get(), options);
    RowOptions rows;
    rows.packing = Packing::blocks;
    rows.cutoff_len = options_.cutoff_len;
    rows.max_documents = options_.max_documents;
    rows.bytes_per_token = options_.bytes_per_token;
    const StepLoader loader(std::make_shared<const Rows>(make_rows(data, rows).train), {0, 1, 1, false});
    Blocks blocks;
    for (std::int64_t i = 0; i < loader.num_steps_per_epoch(); ++i) {
      const Step step = loader.make_step(i);
      target_bytes += step.num_target_bytes;
      add(step, blocks);
    }
    return blocks;
  }
  static void add(const Step& step, Blocks& blocks) {
    for (const Batch& batch : step.micro_batches) {
      for (const Segment& segment : batch.segments().list()) {
        if (segment.padding) continue;
        const auto begin = batch.tokens().begin() + segment.begin;
        blocks.emplace_back(begin, begin + segment.length);
      }
    }
  }
  static std::string text_of(const Step& step) {
    std::string text =
        format("{} {} {} {}", step.epoch, step.num_targets, step.num_target_bytes, step.position.dump());
    for (const std::int64_t id : step.sample_ids) text += format(" #{}", id);
    for (const Batch& batch : step.micro_batches) {
      text += format(" |{}", batch.num_targets());
      for (const std::int32_t token : batch.tokens()) text += format(" {}", token);
    }
    return text;
  }
  void expect_prepared_blocks() {
    std::int64_t bytes = 0, streamed = 0;
    const Blocks expected = prepared(bytes);
    ASSERT_GT(expected.size(), 1u);
    StreamLoader stream = open();
    for (int pass = 0; pass < 3; ++pass) {
      Blocks blocks;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const Step step = stream.next();
        EXPECT_EQ(step.sample_ids, (std::vector<std::int64_t>{static_cast<std::int64_t>(
                                       static_cast<std::size_t>(pass) * expected.size() + i)}));
        if (i + 1 < expected.size()) {
          EXPECT_EQ(step.epoch, pass);
        }
        streamed += step.num_target_bytes;
        add(step, blocks);
      }
      EXPECT_EQ(blocks, expected) << "pass " << pass;
    }
    EXPECT_EQ(streamed, 3 * bytes);
  }

  TempFolder folder_;
  ByteEncoder encoder_;
  StreamOptions options_;
  struct MakeFolder {
    explicit MakeFolder(const std::string& path) { real_files().make_directory(path); }
  } make_folder_{folder_ / "data"};
};

TEST_F(Stream, APassHasTheBlocksOfThePreparedData) {
  put_three();
  expect_prepared_blocks();
  options_.max_documents = 7;
  expect_prepared_blocks();
  options_.cutoff_len = 2;  // documents end within, at and after blocks
  expect_prepared_blocks();
}

TEST_F(Stream, WhatIsLeftOfAPassIsASampleWhenItHasATarget) {
  for (int length = 7; length < 13; ++length) {  // with its end: 8 to 13 tokens
    put_file(folder_ / "data/a.txt", std::string(static_cast<std::size_t>(length), 'x'));
    options_.cutoff_len = 4;
    expect_prepared_blocks();
  }
}

TEST_F(Stream, AStepIsWholeAcrossPasses) {
  put_three();
  StreamLoader one = open(), many = open(3, 2);
  for (int i = 0; i < 40; ++i) {
    const Step step = many.next();
    ASSERT_EQ(step.micro_batches.size(), 2u);
    Blocks blocks, single;
    std::int64_t targets = 0;
    add(step, blocks);
    for (int row = 0; row < 6; ++row) {
      const Step part = one.next();
      targets += part.num_targets;
      add(part, single);
    }
    EXPECT_EQ(blocks, single);
    EXPECT_EQ(step.num_targets, targets);
    EXPECT_EQ(step.sample_ids.size(), 6u);
  }
}

TEST_F(Stream, ResumedAnywhereItIsTheUnbrokenStream) {
  put_three();
  for (const std::int32_t cutoff : {5, 48, 700}) {
    options_.cutoff_len = cutoff;
    options_.max_documents = cutoff == 48 ? 30 : 0;
    StreamLoader whole = open(2, 2);
    std::vector<Step> steps;
    const std::size_t count = cutoff == 5 ? 150 : 30;
    while (steps.size() < count) steps.push_back(whole.next());
    EXPECT_GE(steps.back().epoch, 1);
    for (std::size_t from = 0; from < count; ++from) {
      StreamLoader stream = open(2, 2);
      stream.seek(parse_json(steps[from].position.dump(), "position"));
      for (std::size_t i = from + 1; i < std::min(from + 4, count); ++i)
        ASSERT_EQ(text_of(stream.next()), text_of(steps[i])) << "cutoff " << cutoff << ", from " << from;
    }
  }
}

TEST_F(Stream, SeekingTokenisesNothingBeforeThePosition) {
  put_file(folder_ / "data/a.jsonl", lines(200, 3));
  StreamLoader stream = open();
  Step step;
  for (int i = 0; i < 60; ++i) step = stream.next();
  ASSERT_GT(step.position.at("record").as_int(), 50);
  encoder_.calls = 0;
  open().seek(step.position);
  EXPECT_LE(encoder_.calls, 1);
}

TEST_F(Stream, NothingIsReadAheadOrWritten) {
  put_three();
  RecordingFiles files(real_files());
  StreamLoader stream(files, find_sources(files, {folder_ / "data"}), encoder_.get(), options_);
  EXPECT_EQ(encoder_.calls, 0);
  stream.next();
  EXPECT_LE(encoder_.calls, 48);
  EXPECT_TRUE(files.events().empty());
}

TEST_F(Stream, ABadRecordComesOutOfNextOrIsSkipped) {
  put_file(folder_ / "data/a.jsonl", lines(3, 1) + "{\"text\": 5}\n" + lines(9, 2));
  StreamLoader stream = open();
  const std::string error = error_of(ErrorKind::data, [&] {
    for (int i = 0; i < 1000; ++i) stream.next();
  });
  expect_contains(error, "a.jsonl:6: the field \"text\" must be a string");
  std::vector<std::string> met;
  options_.read.bad_records = BadRecords::skip;
  options_.on_bad_record = [&met](const std::string& what) { met.push_back(what); };
  expect_prepared_blocks();
  ASSERT_FALSE(met.empty());
  expect_contains(met.front(), "a.jsonl:6:");
  EXPECT_LE(met.size(), 5u);
}

TEST_F(Stream, APassWithoutABlockIsAnError) {
  error_of(ErrorKind::data, [&] { StreamLoader(real_files(), {}, encoder_.get(), options_); });
  put_file(folder_ / "data/a.jsonl", "");
  put_file(folder_ / "data/b.jsonl", "{\"text\": \"\"}\n\n{\"text\": \"  \"}\n");
  StreamLoader stream = open();
  expect_contains(error_of(ErrorKind::data, [&] { stream.next(); }), "nothing to train on: 2 files");
  // A single token has nothing to predict.
  put_file(folder_ / "data/b.jsonl", "{\"text\": \"x\"}\n");
  TextEncoder encoder = encoder_.get();
  encoder.eos_id.reset();
  StreamLoader single(real_files(), find_sources(real_files(), {folder_ / "data"}), encoder, options_);
  error_of(ErrorKind::data, [&] { single.next(); });
}

TEST_F(Stream, APositionThatIsNotThereIsRefused) {
  put_three();
  StreamLoader stream = open();
  const Json good = stream.next().position;
  for (const auto& [key, value] :
       {std::pair{"file", 4}, {"record", 5000}, {"token", 100000}, {"epoch", -1}}) {
    Json position = good;
    position[key] = value;
    error_of(ErrorKind::data, [&] { open().seek(position); });
  }
  error_of(ErrorKind::data, [&] { open().seek(Json::object()); });
}

TEST_F(Stream, TheFingerprintIsOfPathsSizesAndOptions) {
  put_file(folder_ / "data/a.txt", "one");
  const std::string first = open().fingerprint();
  EXPECT_EQ(open(4, 2).fingerprint(), first) << "the batch is no part of it";
  put_file(folder_ / "data/a.txt", "two");
  EXPECT_EQ(open().fingerprint(), first) << "content is not read";
  put_file(folder_ / "data/a.txt", "longer");
  const std::string longer = open().fingerprint();
  EXPECT_NE(longer, first);
  options_.cutoff_len = 12;
  EXPECT_NE(open().fingerprint(), longer);
}

}  // namespace
}  // namespace lode
