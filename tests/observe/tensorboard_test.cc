#include "observe/tensorboard.h"

#include <cerrno>
#include <protozero/pbf_reader.hpp>

#include "core/format.h"
#include "gtest/gtest.h"
#include "temp_folder.h"

namespace lode {
namespace {

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) out += format("{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  return out;
}

std::string only_file(const std::string& folder) {
  const auto names = real_files().list(folder);
  EXPECT_EQ(names.size(), 1U);
  return join_path(folder, names.at(0));
}

// Splits a file into records, checking lengths and checksums as a reader does; stops at a damaged one.
std::vector<std::string> records_of(std::string_view file) {
  std::vector<std::string> records;
  while (file.size() >= 16) {
    std::uint64_t length = 0;
    for (int i = 7; i >= 0; --i)
      length = length << 8 | static_cast<unsigned char>(file[static_cast<std::size_t>(i)]);
    if (length > file.size() - 16) break;
    const std::string data(file.substr(12, length));
    if (tfrecord(data) != file.substr(0, length + 16)) break;
    records.push_back(data);
    file.remove_prefix(length + 16);
  }
  return records;
}

struct Event {
  double time = 0;
  std::int64_t step = 0;
  std::string version, tag;
  float value = 0;
  int session = -1;
};

Event parse(const std::string& data) {
  Event event;
  protozero::pbf_reader reader(data);
  while (reader.next()) {
    if (reader.tag() == 1) {
      event.time = reader.get_double();
    } else if (reader.tag() == 2) {
      event.step = reader.get_int64();
    } else if (reader.tag() == 3) {
      event.version = reader.get_string();
    } else if (reader.tag() == 7) {
      protozero::pbf_reader session = reader.get_message();
      EXPECT_TRUE(session.next(1));
      event.session = session.get_enum();
    } else if (reader.tag() == 5) {
      protozero::pbf_reader summary = reader.get_message();
      EXPECT_TRUE(summary.next(1));
      protozero::pbf_reader value = summary.get_message();
      while (value.next()) {
        if (value.tag() == 1) {
          event.tag = value.get_string();
        } else if (value.tag() == 2) {
          event.value = value.get_float();
        } else {
          value.skip();
        }
      }
    } else {
      reader.skip();
    }
  }
  return event;
}

TEST(TfRecord, CheckValues) {
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(masked_crc32c(std::string_view("\x18\0\0\0\0\0\0\0", 8)), 0x224B7FA3U);
  EXPECT_EQ(hex(tfrecord("hello")), "0500000000000000eab2043e68656c6c6fbb1f1c19");
  EXPECT_EQ(tfrecord("").size(), 16U);
}

TEST(Events, BytesAreExact) {
  EXPECT_EQ(hex(tfrecord(version_event(1.0))),
            "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a");
  EXPECT_EQ(hex(tfrecord(scalar_event(2.0, 5, "loss", 0.5F))),
            "1a00000000000000129bd82d09000000000000004010052a0d0a0b0a046c6f7373150000003fdb81a714");
  EXPECT_EQ(hex(session_start_event(1.0, 7)), "09000000000000f03f10073a020801");
  // tag "r/text_summary"; tensor {dtype 7, shape {dim {size 1}}, string_val "hi"}; metadata {plugin {"text"}}
  EXPECT_EQ(hex(text_event(1.0, 0, "r", "hi")),
            "09000000000000f03f2a2a0a280a0e722f746578745f73756d6d617279420c08071204120208014202686"
            "94a080a060a0474657874");
}

TEST(EventWriter, WritesAFileTensorBoardNames) {
  TempFolder folder;
  Log log(false);
  {
    EventWriter events(real_files(), folder.path(), log);
    StepMetrics m;
    m.step = 3;
    m.loss = 1.5;
    m.mfu = 0.25;
    events.write(m);
    events.write(EvalMetrics{.step = 3, .set = "val", .loss = 2});
    events.text("recipe", 0, "# hello");
    events.scalar("nan", 1, std::numeric_limits<double>::quiet_NaN());  // left out
  }
  const std::string path = only_file(folder.path());
  const std::string name = path.substr(path.rfind('/') + 1);
  EXPECT_TRUE(name.starts_with("events.out.tfevents.")) << name;
  EXPECT_EQ(name.substr(20, 11).find('.'), 10U) << name;

  const auto records = records_of(real_files().read(path));
  ASSERT_EQ(records.size(), 6U);
  EXPECT_EQ(parse(records[0]).version, "brain.Event:2");
  EXPECT_GT(parse(records[0]).time, 1.5e9);
  EXPECT_EQ(parse(records[1]).tag, "train/loss");
  EXPECT_EQ(parse(records[1]).value, 1.5F);
  EXPECT_EQ(parse(records[1]).step, 3);
  EXPECT_EQ(parse(records[2]).tag, "train/epoch");
  EXPECT_EQ(parse(records[3]).tag, "speed/mfu");
  EXPECT_EQ(parse(records[4]).tag, "eval/val/loss");
  EXPECT_EQ(parse(records[5]).tag, "recipe/text_summary");
}

TEST(EventWriter, NothingWrittenMakesNoFile) {
  TempFolder folder;
  Log log(false);
  { EventWriter events(real_files(), folder.path(), log); }
  EXPECT_TRUE(real_files().list(folder.path()).empty());
}

TEST(EventWriter, ResumeDropsLaterPoints) {
  TempFolder folder;
  Log log(false);
  { EventWriter(real_files(), folder.path(), log, 40).scalar("a", 41, 1); }
  const auto records = records_of(real_files().read(only_file(folder.path())));
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(parse(records[1]).session, 1);
  EXPECT_EQ(parse(records[1]).step, 41);  // the reader drops this step and later ones
}

TEST(EventWriter, AFailureBeginsANewFile) {
  for (int fail_at = 1; fail_at <= 4; ++fail_at) {
    TempFolder folder;
    Log log(false);
    FailingFiles files(real_files(), fail_at, ENOSPC, false);
    std::int64_t lost = 0;
    {
      EventWriter events(files, folder.path(), log, 0);
      for (int step = 1; step <= 4; ++step) {
        events.scalar("a", step, step);
        events.flush();
      }
      lost = events.lost();
    }
    EXPECT_EQ(lost, 1);
    int points = 0, starts = 0;
    for (const std::string& name : real_files().list(folder.path())) {
      for (const std::string& record : records_of(real_files().read(folder / name))) {
        const Event event = parse(record);
        points += event.tag == "a" ? 1 : 0;
        starts += event.session == 1 ? 1 : 0;
      }
    }
    EXPECT_EQ(points, 3) << fail_at;
    EXPECT_GE(starts, 1) << fail_at;
  }
}

}  // namespace
}  // namespace lode
