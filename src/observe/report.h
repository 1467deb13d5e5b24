// report.html: one self-contained page about a run, readable offline, from run.json and metrics.jsonl.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/json.h"

namespace lode {

struct ReportData {
  std::string title;          // the run's folder name
  Json run;                   // run.json; null when there is none
  std::vector<Json> metrics;  // lines of metrics.jsonl
  std::int64_t broken_lines = 0;
};

std::string make_report_html(const ReportData& data);

// Reads a run folder; `metrics_dir` when the logs went elsewhere. Throws Error(data) when neither file is
// there.
ReportData read_report_data(FileSystem& files, const std::string& run_dir,
                            const std::string& metrics_dir = "");

// Writes <run_dir>/report.html atomically and returns its path.
std::string write_report(FileSystem& files, const std::string& run_dir, const std::string& metrics_dir = "");

std::string escape_html(std::string_view text);

}  // namespace lode
