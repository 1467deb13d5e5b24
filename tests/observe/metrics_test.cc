#include "observe/metrics.h"

#include <cerrno>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "temp_folder.h"

namespace lode {
namespace {

StepMetrics step_metrics(std::int64_t step) {
  StepMetrics m;
  m.step = step;
  m.epoch = 0.5;
  m.loss = 2.25;
  m.learning_rate = 3e-4;
  m.grad_norm = 0.1;
  m.tokens = 1024 * step;
  m.samples = 8 * step;
  return m;
}

TEST(Metrics, StepLineIsExact) {
  StepMetrics m = step_metrics(10);
  EXPECT_EQ(to_json(m).dump(),
            "{\"step\": 10, \"epoch\": 0.5, \"loss\": 2.25, \"learning_rate\": 3e-04, \"grad_norm\": 0.1, "
            "\"tokens\": 10240, \"samples\": 80, \"skipped\": 0}");
  m.seconds = 0.125;
  m.mfu = 0.5;
  m.memory = 4096;
  EXPECT_EQ(to_json(m).find("time_mfu")->as_double(), 0.5);
  EXPECT_EQ(to_json(m).find("time_memory_bytes")->as_int(), 4096);
  EXPECT_EQ(to_json(m).find("time_cores"), nullptr);
}

TEST(Metrics, OnlyTimeFieldsDependOnTime) {
  StepMetrics a = step_metrics(3), b = step_metrics(3);
  b.seconds = b.elapsed = b.tokens_per_second = b.samples_per_second = b.mfu = b.cores = b.data_wait = 7;
  b.memory = b.accounted = 9;
  Json left = to_json(b);
  std::erase_if(left.as_object(), [](const Json::Member& m) { return m.first.starts_with("time_"); });
  EXPECT_EQ(left.dump(), to_json(a).dump());
}

TEST(Metrics, NonFiniteNumbersAreNull) {
  StepMetrics m = step_metrics(1);
  m.loss = std::numeric_limits<double>::quiet_NaN();
  m.grad_norm = std::numeric_limits<double>::infinity();
  const Json back = parse_json(to_json(m).dump(), "line");
  EXPECT_TRUE(back.at("loss").is_null());
  EXPECT_TRUE(back.at("grad_norm").is_null());
}

TEST(Metrics, DoublesSurviveTheirText) {
  StepMetrics m = step_metrics(1);
  for (const double loss : {1.0 / 3, 2.0000000000000004, 5e-324, 1.7976931348623157e308, -0.0, 1e21}) {
    m.loss = loss;
    const Json back = parse_json(to_json(m).dump(), "line");
    EXPECT_EQ(std::signbit(back.at("loss").as_double()), std::signbit(loss));
    EXPECT_EQ(back.at("loss").as_double(), loss);
  }
}

TEST(Metrics, SampleTextIsMadeValid) {
  const Json back = parse_json(to_json(SampleText{5, "a\xFF", "\xE2\x82 end\n\"\x01\""}).dump(), "line");
  EXPECT_EQ(back.at("sample_prompt").as_string(), "a\xEF\xBF\xBD");
  EXPECT_EQ(back.at("sample_text").as_string(), "\xEF\xBF\xBD\xEF\xBF\xBD end\n\"\x01\"");
}

TEST(MetricsLog, EachLineIsThereAtOnce) {
  TempFolder folder;
  Log log(false);
  MetricsLog metrics(real_files(), folder / "metrics.jsonl", log);
  metrics.write(to_json(step_metrics(1)));
  EXPECT_EQ(real_files().read(folder / "metrics.jsonl"), to_json(step_metrics(1)).dump() + "\n");
  metrics.write(to_json(EvalMetrics{.step = 1, .set = "held out", .loss = 1.5}));
  const MetricsFile file = read_metrics(real_files(), folder / "metrics.jsonl");
  ASSERT_EQ(file.records.size(), 2U);
  EXPECT_EQ(file.records[1].at("eval_set").as_string(), "held out");
  EXPECT_TRUE(file.records[1].at("eval_perplexity").is_null());
  EXPECT_EQ(file.broken, 0);
  EXPECT_EQ(metrics.lost(), 0);
}

TEST(MetricsLog, ContinuesAfterATornLine) {
  TempFolder folder;
  Log log(false);
  real_files().create(folder / "m")->write("{\"step\": 1}\n{\"st");
  MetricsLog(real_files(), folder / "m", log).write(Json::object({{"step", 2}}));
  const MetricsFile file = read_metrics(real_files(), folder / "m");
  ASSERT_EQ(file.records.size(), 2U);
  EXPECT_EQ(file.records[1].at("step").as_int(), 2);
  EXPECT_EQ(file.broken, 1);
}

TEST(MetricsLog, FullDiskLosesLinesNotTheRun) {
  TempFolder folder;
  Log log(false);
  log.add_file(folder / "log.txt");
  FailingFiles files(real_files(), 3, ENOSPC);  // open, first line, then nothing more
  MetricsLog metrics(files, folder / "m", log);
  for (int step = 1; step <= 4; ++step) metrics.write(to_json(step_metrics(step)));
  EXPECT_EQ(metrics.lost(), 3);
  const MetricsFile file = read_metrics(real_files(), folder / "m");
  ASSERT_EQ(file.records.size(), 1U);
  EXPECT_EQ(file.broken, 1);  // half of the second line
  const std::string text = real_files().read(folder / "log.txt");
  EXPECT_NE(text.find("metrics are lost"), std::string::npos);
  EXPECT_EQ(text.find("metrics are lost"), text.rfind("metrics are lost"));
}

TEST(MetricsLog, OneFailureAnywhereCostsOneLine) {
  for (int fail_at = 1; fail_at <= 4; ++fail_at) {
    TempFolder folder;
    Log log(false);
    FailingFiles files(real_files(), fail_at, EIO, false);
    MetricsLog metrics(files, folder / "m", log);
    for (int step = 1; step <= 5; ++step) metrics.write(to_json(step_metrics(step)));
    EXPECT_EQ(metrics.lost(), 1);
    EXPECT_EQ(read_metrics(real_files(), folder / "m").records.size(), 4U) << fail_at;
  }
}

TEST(CutBack, RemovesLaterAndBrokenLines) {
  TempFolder folder;
  const std::string path = folder / "m", kept = "{\"step\": 1,  \"loss\": 1.50}\n{\"step\": 2}\n";
  real_files().create(path)->write(
      kept + "{\"step\": 3}\n\nnot json\n[1]\n{\"loss\": 1}\n{\"step\": 2}\n{\"step\": 1}");
  cut_back_metrics(real_files(), path, 2);
  EXPECT_EQ(real_files().read(path), kept + "{\"step\": 2}\n");  // the last line was torn
  cut_back_metrics(real_files(), path, 0);
  EXPECT_EQ(real_files().read(path), "");
}

TEST(CutBack, EveryTornLengthLeavesWholeLines) {
  TempFolder folder;
  const std::string path = folder / "m";
  const std::string first = to_json(step_metrics(1)).dump() + "\n",
                    second = to_json(step_metrics(2)).dump() + "\n";
  for (std::size_t length = 0; length <= second.size(); ++length) {
    real_files().create(path)->write(first + second.substr(0, length));
    cut_back_metrics(real_files(), path, 5);
    EXPECT_EQ(real_files().read(path), length == second.size() ? first + second : first);
  }
}

TEST(CutBack, AbsentFileIsFineAndAnUnchangedOneIsNotWritten) {
  TempFolder folder;
  RecordingFiles files(real_files());
  cut_back_metrics(files, folder / "none", 3);
  EXPECT_FALSE(real_files().exists(folder / "none"));
  real_files().create(folder / "m")->write("{\"step\": 1}\n");
  cut_back_metrics(files, folder / "m", 3);
  EXPECT_TRUE(files.events().empty());
}

TEST(CutBack, FailureLeavesTheOldFile) {
  TempFolder folder;
  const std::string path = folder / "m", text = "{\"step\": 1}\n{\"step\": 9}\n";
  int failures = 0;
  for (int fail_at = 1; fail_at < 20; ++fail_at) {
    real_files().create(path)->write(text);
    FailingFiles files(real_files(), fail_at, ENOSPC);
    if (error_of([&] { cut_back_metrics(files, path, 1); }).empty()) break;
    ++failures;
    const std::string now = real_files().read(path);
    EXPECT_TRUE(now == text || now == "{\"step\": 1}\n") << now;
  }
  EXPECT_GE(failures, 3);
}

}  // namespace
}  // namespace lode
