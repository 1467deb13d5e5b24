#include "observe/report.h"

#include <algorithm>
#include <cmath>

#include "core/format.h"
#include "gtest/gtest.h"
#include "observe/chart.h"
#include "observe/metrics.h"
#include "temp_folder.h"

namespace lode {
namespace {

// The first fault of a page's markup: tags that do not balance, bare < or &, unquoted attributes. "" when
// there is none.
std::string markup_fault(std::string_view page) {
  std::vector<std::string> open;
  for (std::size_t i = 0; i < page.size(); ++i) {
    if (page[i] == '&') {
      const std::size_t end = page.find(';', i);
      if (end == std::string_view::npos || end - i > 7)
        return "a bare & at " + std::string(page.substr(i, 40));
    }
    if (page[i] == '>') return "a bare > at " + std::string(page.substr(i, 40));
    if (page[i] != '<') continue;
    const std::size_t end = page.find('>', i);
    if (end == std::string_view::npos) return "an open tag";
    const std::string_view tag = page.substr(i + 1, end - i - 1);
    i = end;
    if (tag.starts_with("!")) continue;
    if (std::count(tag.begin(), tag.end(), '"') % 2 != 0) return "quotes in " + std::string(tag);
    if (tag.starts_with("/")) {
      if (open.empty() || open.back() != tag.substr(1))
        return "an unexpected </" + std::string(tag.substr(1));
      open.pop_back();
    } else if (!tag.ends_with("/")) {
      open.emplace_back(tag.substr(0, tag.find(' ')));
      if (open.back() == "style") i = page.find("</style", i) - 1;  // its text is no markup
    }
  }
  return open.empty() ? "" : "an unclosed " + open.back();
}

ReportData full_data() {
  ReportData data;
  data.title = "demo";
  data.run =
      parse_json(R"json({"status": "done", "reason": "done", "command_line": ["lode", "train", "r.yaml"],
      "total_steps": 60, "model": {"model_type": "llama", "parameters": 10100000, "trainable_parameters": 10100000,
      "flops_per_token": 6e7}, "peak_flops": 6e11, "hardware": {"cpu_model": "Test CPU", "usable_cores": 2, "cores": 4},
      "training": {"seconds": 100, "tokens": 500000, "tokens_per_second": 5000.0, "flops": 3e13, "mfu": 0.5},
      "optimisations": [{"name": "precision", "asked": "bf16", "chosen": "f32", "why": "no bf16", "substituted": true}],
      "memory_plan": {"weights": 1048576}, "memory": {"by_tag": {"weights": {"current": 1048576, "peak": 2097152},
      "derived": {"current": 0, "peak": 0}}, "total": {"current": 1048576, "peak": 2097152}},
      "data": {"documents": 66}, "packing": {"density": 0.991}, "batch": {}, "tokenizer": {"vocab_size": 4096},
      "results": {"best": "checkpoint-60"}, "counters": {"hits": 3}, "recipe": {"learning_rate": 0.001}})json",
                 "run");
  for (int step = 1; step <= 60; ++step) {
    StepMetrics m;
    m.step = step;
    m.loss = 8 * std::exp(-step / 20.0) + 2;
    m.learning_rate = 1e-3 * step / 60;
    m.grad_norm = step == 30 ? kUnknown : 1.0 / step;
    m.tokens_per_second = 5000;
    m.mfu = 0.5;
    m.memory = 3 << 20;
    m.accounted = 2 << 20;
    data.metrics.push_back(to_json(m));
    if (step % 20 == 0) {
      data.metrics.push_back(to_json(EvalMetrics{.step = step,
                                                 .set = "val",
                                                 .loss = 2.5,
                                                 .perplexity = 12.2,
                                                 .bits_per_byte = 1.6,
                                                 .token_accuracy = 0.5}));
      data.metrics.push_back(to_json(EvalMetrics{.step = step, .set = "code", .loss = 2.25}));
      data.metrics.push_back(to_json(SampleText{step, "In the beginning", " God <created> & said"}));
    }
  }
  return data;
}

TEST(Report, IsWellFormedAndComplete) {
  const std::string page = make_report_html(full_data());
  EXPECT_EQ(markup_fault(page), "");
  for (const char* part : {"train, as logged",
                           "train, smoothed",
                           "val (evaluation)",
                           "code (evaluation)",
                           "aria-label=\"Loss\"",
                           "aria-label=\"Learning rate\"",
                           "aria-label=\"Gradient norm\"",
                           "aria-label=\"Throughput\"",
                           "aria-label=\"Memory\"",
                           "resident",
                           "accounted by tag",
                           "aria-label=\"MFU\"",
                           "bits per byte",
                           "(substituted)",
                           "no bf16",
                           "God &lt;created&gt; &amp; said",
                           "50.0 % = 30.000 TFLOP of matrix products / 100.0 s / 600 GFLOP/s",
                           "2.00 MiB",
                           "density",
                           "vocab size",
                           "hits",
                           "checkpoint-60",
                           "learning rate",
                           "prefers-color-scheme:dark",
                           "lode train r.yaml"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  EXPECT_NE(page.find("exponential average"), std::string::npos);
}

TEST(Report, NeedsNothingFromElsewhere) {
  const std::string page = make_report_html(full_data());
  for (const char* part : {"http:", "https:", "src=", "href=", "@import", "url(", "<script", "<link"}) {
    EXPECT_EQ(page.find(part), std::string::npos) << part;
  }
}

TEST(Report, HostileTextIsEscapedEverywhere) {
  const std::string evil = "</title></style><script>alert('x')\"&\x01\xFF";
  ReportData data = full_data();
  data.title = evil;
  const std::string text = data.run.dump();
  // Put the text into every string and every key of the record, whatever it means.
  const auto poison = [&](auto&& self, Json& value) -> void {
    if (value.is_string()) value = Json(evil);
    if (value.is_array()) {
      for (Json& item : value.as_array()) self(self, item);
    }
    if (value.is_object()) {
      for (auto& [key, item] : value.as_object()) self(self, item);
    }
  };
  poison(poison, data.run);
  for (Json& record : data.metrics) poison(poison, record);
  for (const char* key : {"model", "data", "recipe", "counters", "results", "packing"})
    data.run[key][evil] = evil;
  data.run["memory"]["by_tag"][evil] = Json::object({{"peak", 5}});
  const std::string page = make_report_html(data);
  EXPECT_EQ(markup_fault(page), "");
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_NE(page.find("&lt;script&gt;alert(&#39;x&#39;)&quot;&amp; \xEF\xBF\xBD"), std::string::npos);
  EXPECT_NE(text, data.run.dump());
}

TEST(Report, ShowsWhatThereIs) {
  EXPECT_EQ(markup_fault(make_report_html({})), "");
  EXPECT_NE(make_report_html({}).find("no data"), std::string::npos);
  ReportData wrong;  // every member of another type than expected
  wrong.run =
      parse_json(R"({"model": 3, "memory": {"by_tag": {"weights": 1}, "total": []}, "optimisations": [1, "x"],
      "command_line": 7, "recipe": [], "hardware": "none", "training": null, "status": {"a": []}})",
                 "run");
  wrong.metrics = {parse_json(R"({"step": "x", "loss": "y"})", "m"),
                   parse_json(R"({"eval_set": 1, "eval_loss": {}})", "m"),
                   parse_json(R"({"sample_text": 5})", "m"),
                   parse_json(R"({"step": 1e300, "loss": 1e308})", "m"),
                   parse_json(R"({"step": 2, "loss": -1e308, "time_memory_bytes": -5})", "m")};
  EXPECT_EQ(markup_fault(make_report_html(wrong)), "");
}

TEST(Report, OneLineOfMetrics) {
  ReportData data;
  data.metrics = {to_json(StepMetrics{.step = 1, .loss = 3})};
  const std::string page = make_report_html(data);
  EXPECT_EQ(markup_fault(page), "");
  EXPECT_NE(page.find("<circle"), std::string::npos);  // a line needs two points
  EXPECT_EQ(page.find("nan"), std::string::npos);
}

TEST(Report, LongRunsStaySmall) {
  ReportData data;
  for (int step = 1; step <= 50'000; ++step)
    data.metrics.push_back(to_json(StepMetrics{.step = step, .loss = 2 + std::sin(step)}));
  EXPECT_LT(make_report_html(data).size(), 200'000U);
}

TEST(Report, WrittenFromARunFolder) {
  TempFolder folder;
  EXPECT_EQ(kind_of([&] { write_report(real_files(), folder.path()); }), ErrorKind::data);
  const ReportData full = full_data();
  real_files().create(folder / "run.json")->write(full.run.dump(2));
  std::string lines;
  for (const Json& record : full.metrics) lines += record.dump() + "\n";
  real_files().create(folder / "metrics.jsonl")->write(lines + "{\"torn");
  const std::string path = write_report(real_files(), folder.path());
  EXPECT_EQ(path, folder / "report.html");
  ReportData data = read_report_data(real_files(), folder.path() + "/");
  EXPECT_EQ(data.title, folder.path().substr(folder.path().rfind('/') + 1));
  EXPECT_EQ(data.broken_lines, 1);
  EXPECT_EQ(real_files().read(path), make_report_html(data));

  // Logs elsewhere
  TempFolder logs;
  real_files().rename(folder / "metrics.jsonl", logs / "metrics.jsonl");
  EXPECT_EQ(read_report_data(real_files(), folder.path(), logs.path()).metrics.size(), full.metrics.size());
  EXPECT_EQ(read_report_data(real_files(), folder.path()).metrics.size(), 0U);
}

TEST(Chart, TicksAreRoundAndInside) {
  for (const auto& [low, high] : {std::pair{0.0, 1.0},
                                  {1.93, 10.7},
                                  {-5.0, 5.0},
                                  {0.0, 6e-4},
                                  {0.0, 123456.0},
                                  {3.0, 3.0},
                                  {0.0, 0.0}}) {
    const Axis axis = linear_axis(low, high, 5);
    EXPECT_GE(axis.ticks.size(), 2U) << low << " " << high;
    EXPECT_LE(axis.ticks.size(), 11U);
    for (const double tick : axis.ticks) {
      EXPECT_GE(tick, axis.low - 1e-9 * (axis.high - axis.low));
      EXPECT_LE(tick, axis.high + 1e-9 * (axis.high - axis.low));
    }
  }
  EXPECT_EQ(linear_axis(0, 1000, 5).ticks, (std::vector<double>{0, 200, 400, 600, 800, 1000}));
  const Axis wide = linear_axis(1.93, 10.7, 4, true);
  EXPECT_EQ(wide.ticks, (std::vector<double>{0, 5, 10, 15}));
  EXPECT_EQ(wide.low, 0);
  EXPECT_EQ(wide.high, 15);
  EXPECT_EQ(log_axis(0.5, 150).ticks, (std::vector<double>{0.5, 1, 2, 5, 10, 20, 50, 100}));
  EXPECT_EQ(tick_label(linear_axis(0, 0.001, 5), 0.0002), "0.0002");
  EXPECT_EQ(tick_label(linear_axis(0, 50'000, 5), 20'000), "20.0k");
}

TEST(Chart, SmoothingStartsWithoutBias) {
  const std::vector<Point> constant(30, {0, 4});
  for (const Point& p : smooth(constant, 10)) EXPECT_NEAR(p.y, 4, 1e-12);
  EXPECT_EQ(smooth({{0, kUnknown}, {1, 2}}, 5).size(), 1U);
  EXPECT_TRUE(smooth({}, 5).empty());
}

TEST(Chart, ThinningKeepsExtremes) {
  std::vector<Point> points;
  for (int i = 0; i < 10'000; ++i)
    points.push_back({static_cast<double>(i), i == 7'777 ? 99.0 : i == 1'234 ? -99.0 : 0.5});
  const std::vector<Point> thin = thin_out(points, 100);
  EXPECT_LE(thin.size(), 102U);
  EXPECT_EQ(thin.front().x, 0);
  EXPECT_EQ(thin.back().x, 9'999);
  const auto has = [&](double y) {
    return std::any_of(thin.begin(), thin.end(), [&](const Point& p) { return p.y == y; });
  };
  EXPECT_TRUE(has(99) && has(-99));
  EXPECT_TRUE(
      std::is_sorted(thin.begin(), thin.end(), [](const Point& a, const Point& b) { return a.x < b.x; }));
}

}  // namespace
}  // namespace lode
