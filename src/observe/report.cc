#include "observe/report.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <utility>

#include "core/fail.h"
#include "observe/chart.h"
#include "observe/display.h"
#include "observe/metrics.h"
#include "observe/progress.h"
#include "observe/report_style.h"

namespace lode {
namespace {

constexpr std::size_t kMostRows = 100;  // of evaluations
constexpr std::size_t kMostSamples = 30;

// Reading what may be absent or of another type: the page shows what there is.
const Json& member(const Json& object, std::string_view key) {
  static const Json null;
  const Json* value = object.find(key);
  return value == nullptr ? null : *value;
}
double number(const Json& object, std::string_view key) {
  const Json& value = member(object, key);
  return value.is_number() ? value.as_double() : kUnknown;
}
std::string text(const Json& object, std::string_view key) {
  const Json& value = member(object, key);
  return value.is_null() ? "" : plain_text(value);
}
bool known(double value) {
  return std::isfinite(value);
}

std::string bytes_text(double bytes) {
  return known(bytes) && bytes >= 0 && bytes < 1e18 ? format_bytes(static_cast<std::uint64_t>(bytes)) : "";
}

std::vector<Point> points_of(const std::vector<Json>& records, std::string_view key, double scale = 1) {
  std::vector<Point> points;
  for (const Json& record : records) {
    if (record.find(key) != nullptr) points.push_back({number(record, "step"), scale * number(record, key)});
  }
  return points;
}

// Evaluation results by set, in order of first appearance.
std::vector<Series> eval_series(const std::vector<Json>& records, std::string_view key,
                                std::string_view suffix) {
  std::vector<Series> series;
  for (const Json& record : records) {
    if (record.find("eval_set") == nullptr || record.find(key) == nullptr) continue;
    const std::string name = text(record, "eval_set") + std::string(suffix);
    auto found = std::ranges::find(series, name, &Series::name);
    if (found == series.end()) {
      series.push_back({name, {}, false, true});
      found = std::prev(series.end());
    }
    found->points.push_back({number(record, "step"), number(record, key)});
  }
  return series;
}

Chart loss_chart(const std::vector<Json>& metrics) {
  constexpr std::size_t kFewest = 20;
  Chart chart{"Loss", "nats per token", "", {}, false, true};
  const std::vector<Point> loss = points_of(metrics, "loss");
  if (loss.size() < kFewest) {
    chart.series.push_back({"train", loss, false, false});
  } else {
    const double span = std::clamp(std::floor(static_cast<double>(loss.size()) / 25), 2.0, 50.0);
    chart.series.push_back({"train, as logged", loss, true, false});
    chart.series.push_back({"train, smoothed", smooth(loss, span), false, false});
    chart.note = format(
        "Pale: the loss as logged. Strong: its exponential average over about {:.0f} lines of the log.",
        span);
  }
  for (Series& series : eval_series(metrics, "eval_loss", " (evaluation)"))
    chart.series.push_back(std::move(series));
  return chart;
}

std::string charts_html(const std::vector<Json>& metrics) {
  constexpr double kPerMiB = 1.0 / (1 << 20);
  const auto single = [&](std::string title, std::string unit, std::string name, std::string_view key,
                          double scale, bool from_zero) {
    return chart_html({std::move(title),
                       std::move(unit),
                       "",
                       {{std::move(name), points_of(metrics, key, scale), false, false}},
                       from_zero,
                       false});
  };
  std::string out = "<section class=\"charts\">" + chart_html(loss_chart(metrics));
  out += single("Learning rate", "", "learning rate", "learning_rate", 1, true);
  out += single("Gradient norm", "before clipping", "gradient norm", "grad_norm", 1, false);
  out += single("Throughput", "tokens/s", "tokens/s", "time_tokens_per_second", 1, true);
  out +=
      chart_html({"Memory",
                  "MiB",
                  "",
                  {{"resident", points_of(metrics, "time_memory_bytes", kPerMiB), false, false},
                   {"accounted by tag", points_of(metrics, "time_accounted_bytes", kPerMiB), false, false}},
                  true,
                  false});
  if (std::vector<Series> bits = eval_series(metrics, "eval_bits_per_byte", ""); !bits.empty()) {
    out += chart_html({"Evaluation", "bits per byte", "", std::move(bits), false, false});
  }
  if (const auto mfu = points_of(metrics, "time_mfu", 100); !mfu.empty()) {
    out += chart_html({"MFU", "% of the measured peak", "", {{"MFU", mfu, false, false}}, true, false});
  }
  return out + "</section>";
}

using Rows = std::vector<std::vector<std::string>>;

// Cells are escaped here; columns listed in `numeric` are set to the right.
std::string table_html(const std::vector<std::string>& head, const Rows& rows,
                       const std::string& numeric = "") {
  const auto cell = [&](std::string_view tag, std::size_t column, const std::string& content) {
    const bool right = numeric.find(static_cast<char>('0' + column)) != std::string::npos;
    return format("<{}{}>{}</{}>", tag, right ? " class=\"n\"" : "", escape_html(content), tag);
  };
  std::string out = "<div class=\"scroll\"><table>";
  if (!head.empty()) {
    out += "<thead><tr>";
    for (std::size_t i = 0; i < head.size(); ++i) out += cell("th", i, head[i]);
    out += "</tr></thead>";
  }
  out += "<tbody>";
  for (const auto& row : rows) {
    out += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) out += cell("td", i, row[i]);
    out += "</tr>";
  }
  return out + "</tbody></table></div>";
}

std::string section_html(std::string_view title, const std::string& content, std::string_view note = "") {
  if (content.empty()) return "";
  std::string out = "<section><h2>" + escape_html(title) + "</h2>";
  if (!note.empty()) out += "<p class=\"note\">" + escape_html(note) + "</p>";
  return out + content + "</section>";
}

std::string object_table(const Json& object) {
  if (object.size() == 0 || !object.is_object()) return "";
  Rows rows;
  for (const auto& [key, value] : object.as_object()) rows.push_back({plain_key(key), plain_text(value)});
  return table_html({}, rows);
}

std::string tiles_html(const ReportData& data) {
  const Json& training = member(data.run, "training");
  std::vector<std::pair<std::string, std::string>> tiles;
  const auto add = [&](std::string name, double value, std::string shown) {
    if (known(value)) tiles.emplace_back(std::move(name), std::move(shown));
  };
  double loss = kUnknown, step = kUnknown, best = kUnknown, rate = kUnknown, mfu = kUnknown, bits = kUnknown;
  for (const Json& record : data.metrics) {
    const auto last = [&](double& kept, std::string_view key) {
      if (const double value = number(record, key); known(value)) kept = value;
    };
    last(step, "step");
    last(loss, "loss");
    last(rate, "time_tokens_per_second");
    last(mfu, "time_mfu");
    best = std::fmin(best, number(record, "eval_loss"));
    bits = std::fmin(bits, number(record, "eval_bits_per_byte"));
  }
  if (known(number(training, "tokens_per_second"))) rate = number(training, "tokens_per_second");
  if (known(number(training, "mfu"))) mfu = number(training, "mfu");
  const double parameters = number(member(data.run, "model"), "parameters");
  const double total = number(data.run, "total_steps");
  add("parameters", parameters, short_count(parameters));
  add("steps", step, known(total) ? format("{:.0f} / {:.0f}", step, total) : format("{:.0f}", step));
  add("last loss", loss, format("{:.4f}", loss));
  add("best eval loss", best, format("{:.4f}", best));
  add("best bits/byte", bits, format("{:.3f}", bits));
  add("tokens/s", rate, short_count(rate));
  add("MFU", mfu, format("{:.1f} %", 100 * mfu));
  add("training time", number(training, "seconds"), format_duration(number(training, "seconds")));
  std::string out = "<section class=\"tiles\">";
  for (const auto& [name, shown] : tiles) {
    out += "<div><b>" + escape_html(shown) + "</b><span>" + escape_html(name) + "</span></div>";
  }
  return out + "</section>";
}

std::string mfu_formula(const Json& run) {
  const Json& training = member(run, "training");
  const double mfu = number(training, "mfu"), seconds = number(training, "seconds");
  const double flops = number(training, "flops"), peak = number(run, "peak_flops");
  if (!known(mfu) || !known(seconds) || !known(flops) || !known(peak)) return "";
  return format("{:.1f} % = {:.3f} TFLOP of matrix products / {:.1f} s / {:.0f} GFLOP/s measured peak",
                100 * mfu, flops / 1e12, seconds, peak / 1e9);
}

std::string run_table(const ReportData& data) {
  const Json &run = data.run, &training = member(run, "training"), &hardware = member(run, "hardware");
  const Json &model = member(run, "model"), &build = member(run, "build");
  Rows rows;
  const auto add = [&](std::string name, std::string shown) {
    if (!shown.empty()) rows.push_back({std::move(name), std::move(shown)});
  };
  const std::string status = text(run, "status"), reason = text(run, "reason");
  add("status", reason.empty() || reason == status ? status : status + ": " + reason);
  add("started", text(run, "started"));
  add("ended", text(run, "ended"));
  if (member(run, "earlier").size() > 0) add("resumed", format("{} times", member(run, "earlier").size()));
  if (member(model, "parameters").is_number()) {
    add("parameters", text(model, "parameters") + " (" + text(model, "trainable_parameters") + " trainable)");
  }
  if (known(number(model, "flops_per_token")))
    add("FLOPs per token", short_count(number(model, "flops_per_token")));
  add("tokens", text(training, "tokens"));
  add("training time",
      known(number(training, "seconds")) ? format_duration(number(training, "seconds")) : "");
  add("MFU", mfu_formula(run));
  add("peak resident memory", bytes_text(number(member(run, "process"), "peak_resident_bytes")));
  add("processor", text(hardware, "cpu_model"));
  if (known(number(hardware, "usable_cores")))
    add("cores", text(hardware, "usable_cores") + " of " + text(hardware, "cores"));
  add("memory", bytes_text(number(hardware, "memory_bytes")));
  add("build",
      text(build, "version") + (text(build, "compiler").empty() ? "" : ", " + text(build, "compiler")));
  if (data.broken_lines > 0) add("unreadable lines of metrics.jsonl", format("{}", data.broken_lines));
  return table_html({}, rows);
}

std::string facts_table(const Json& run) {
  const Json& facts = member(run, "optimisations");
  if (!facts.is_array() || facts.size() == 0) return "";
  Rows rows;
  for (const Json& fact : facts.as_array()) {
    const Json& substituted = member(fact, "substituted");
    const bool marked = substituted.is_bool() && substituted.as_bool();
    rows.push_back({text(fact, "name"), text(fact, "asked"),
                    text(fact, "chosen") + (marked ? "  (substituted)" : ""), text(fact, "why")});
  }
  return table_html({"", "asked", "chosen", "why"}, rows);
}

std::string memory_table(const Json& run) {
  const Json &memory = member(run, "memory"), &tags = member(memory, "by_tag"),
             &plan = member(run, "memory_plan");
  if (!tags.is_object()) return "";
  Rows rows;
  for (const auto& [tag, use] : tags.as_object()) {
    if (!(number(use, "peak") > 0) && plan.find(tag) == nullptr) continue;
    rows.push_back({plain_key(tag), bytes_text(number(plan, tag)), bytes_text(number(use, "current")),
                    bytes_text(number(use, "peak"))});
  }
  const Json& total = member(memory, "total");
  rows.push_back({"together", "", bytes_text(number(total, "current")), bytes_text(number(total, "peak"))});
  return table_html({"tag", "planned", "at the end", "peak"}, rows, "123");
}

std::string eval_table(const std::vector<Json>& metrics) {
  Rows rows;
  const auto shown = [](const Json& record, std::string_view key, std::string_view pattern,
                        double scale = 1) {
    const double value = number(record, key);
    return known(value) ? format(pattern, scale * value) : std::string();
  };
  for (const Json& record : metrics) {
    if (record.find("eval_set") == nullptr) continue;
    rows.push_back({text(record, "step"), text(record, "eval_set"), shown(record, "eval_loss", "{:.4f}"),
                    shown(record, "eval_perplexity", "{:.3f}"), shown(record, "eval_bits_per_byte", "{:.4f}"),
                    shown(record, "eval_token_accuracy", "{:.2f} %", 100), text(record, "eval_tokens")});
  }
  if (rows.empty()) return "";
  std::string note;
  if (rows.size() > kMostRows) {
    note = format("<p class=\"note\">The last {} of {}.</p>", kMostRows, rows.size());
    rows.erase(rows.begin(), rows.end() - static_cast<std::ptrdiff_t>(kMostRows));
  }
  return note + table_html({"step", "set", "loss", "perplexity", "bits per byte", "token accuracy", "tokens"},
                           rows, "023456");
}

std::string samples_html(const std::vector<Json>& metrics) {
  std::vector<const Json*> samples;
  for (const Json& record : metrics) {
    if (record.find("sample_text") != nullptr) samples.push_back(&record);
  }
  const std::size_t first = samples.size() > kMostSamples ? samples.size() - kMostSamples : 0;
  std::string out;
  for (std::size_t i = samples.size(); i-- > first;) {  // the newest first
    out += format("<div class=\"sample\"><h3>step {}</h3><p><b>{}</b>{}</p></div>",
                  escape_html(text(*samples[i], "step")), escape_html(text(*samples[i], "sample_prompt")),
                  escape_html(text(*samples[i], "sample_text")));
  }
  return out;
}

std::string recipe_html(const Json& run) {
  const std::string table = object_table(member(run, "recipe"));
  if (table.empty()) return "";
  return "<details><summary>all keys</summary>" + table + "</details>";
}

std::string command_text(const Json& run) {
  const Json& words = member(run, "command_line");
  std::string out;
  if (!words.is_array()) return out;
  for (const Json& word : words.as_array()) out += (out.empty() ? "" : " ") + plain_text(word);
  return out;
}

}  // namespace

std::string escape_html(std::string_view raw) {
  std::string out;
  for (const char c : repair_utf8(raw)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        // Control characters have no place in a page.
        out += static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return out;
}

std::string make_report_html(const ReportData& data) {
  const std::string title = escape_html(data.title);
  const std::string command = command_text(data.run);
  std::string out = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>";
  out += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>";
  out += "<meta name=\"color-scheme\" content=\"light dark\"/>";
  out += "<title>" + title + " - training report</title><style>" + std::string(kReportStyle) +
         "</style></head><body><main>";
  out += "<header><h1>" + title + "</h1>";
  if (!command.empty()) out += "<p><code>" + escape_html(command) + "</code></p>";
  out += "</header>";
  out += tiles_html(data);
  out += charts_html(data.metrics);
  out += section_html("Evaluations", eval_table(data.metrics));
  out += section_html("Samples", samples_html(data.metrics),
                      "Text written by the model; the prompt in bold. The newest first.");
  out += "<div class=\"pair\">";
  out += section_html("Run", run_table(data));
  out += section_html("Memory by tag", memory_table(data.run), "Each peak at its own moment.");
  out += "</div>";
  out +=
      section_html("Optimisations", facts_table(data.run), "What was asked for, what really ran, and why.");
  out += "<div class=\"pair\">";
  out += section_html("Model", object_table(member(data.run, "model")));
  out += section_html("Data", object_table(member(data.run, "data")));
  out += section_html("Packing", object_table(member(data.run, "packing")));
  out += section_html("Batch", object_table(member(data.run, "batch")));
  out += section_html("Tokenizer", object_table(member(data.run, "tokenizer")));
  out += section_html("Results", object_table(member(data.run, "results")));
  out += section_html("Counters", object_table(member(data.run, "counters")));
  out += "</div>";
  out += section_html("Recipe", recipe_html(data.run));
  return out + "</main></body></html>\n";
}

ReportData read_report_data(FileSystem& files, const std::string& run_dir, const std::string& metrics_dir) {
  const std::string run_path = join_path(run_dir, "run.json");
  const std::string metrics_path = join_path(metrics_dir.empty() ? run_dir : metrics_dir, "metrics.jsonl");
  const bool has_run = files.exists(run_path);
  if (!has_run && !files.exists(metrics_path)) {
    fail(ErrorKind::data, "{}: no run folder: neither run.json nor metrics.jsonl is there", run_dir);
  }
  ReportData data;
  std::filesystem::path folder = std::filesystem::path(run_dir).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  data.title = folder.filename().string();
  if (has_run) data.run = parse_json(files.read(run_path), run_path);
  MetricsFile metrics = read_metrics(files, metrics_path);
  data.metrics = std::move(metrics.records);
  data.broken_lines = metrics.broken;
  return data;
}

std::string write_report(FileSystem& files, const std::string& run_dir, const std::string& metrics_dir) {
  const std::string path = join_path(run_dir, "report.html");
  write_file_atomically(files, path, make_report_html(read_report_data(files, run_dir, metrics_dir)));
  return path;
}

}  // namespace lode
