// metrics.jsonl: what a run measured, one JSON object a line. Three kinds of line:
//   training   {"step","epoch","loss","learning_rate","grad_norm","tokens","samples","time_..."}, one a
//   logging step evaluation {"step","epoch","eval_set","eval_loss",...,"time_..."}, one a named set sample
//   {"step","sample_prompt","sample_text"}
// A field that depends on time or on the machine is named time_*. All others are functions of the recipe and
// the data, and numbers print shortest round-trip, so bitwise-equal runs give equal lines once the time_*
// fields are left out. A number that is not finite, or not known, is null.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "core/log.h"

namespace lode {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// Figures of one logging step. Fields from `seconds` on become time_* fields; those left unknown are not
// written.
struct StepMetrics {
  std::int64_t step = 0;
  double epoch = 0;
  double loss = kUnknown;  // mean over the target tokens of the steps since the last line
  double learning_rate = kUnknown;
  double grad_norm = kUnknown;   // before clipping
  double loss_scale = kUnknown;  // of fp16; not written when unknown
  std::int64_t tokens = 0;       // target tokens trained on since the run began, earlier parts included
  std::int64_t samples = 0;      // likewise
  std::int64_t skipped = 0;      // updates skipped (non-finite loss or gradient) since the run began
  double seconds = kUnknown;     // one step, mean since the last line
  double elapsed = kUnknown;     // seconds since this process began training
  double tokens_per_second = kUnknown;
  double samples_per_second = kUnknown;
  double mfu = kUnknown;        // 0..1
  double cores = kUnknown;      // processor seconds per second
  double data_wait = kUnknown;  // seconds a step waited for the loader, mean
  std::uint64_t memory = 0;     // bytes resident now
  std::uint64_t accounted = 0;  // bytes accounted by tag now
};

// Result of one evaluation set.
struct EvalMetrics {
  std::int64_t step = 0;
  double epoch = 0;
  std::string set;
  double loss = kUnknown, perplexity = kUnknown, bits_per_byte = kUnknown, token_accuracy = kUnknown;
  std::int64_t tokens = 0, samples = 0;
  double seconds = kUnknown;  // time_* field
};

// Text that the model generated at an evaluation.
struct SampleText {
  std::int64_t step = 0;
  std::string prompt, text;
};

Json to_json(const StepMetrics& m);
Json to_json(const EvalMetrics& m);
Json to_json(const SampleText& m);

// Appends lines to the file, each handed to the system at once. A failing disk does not end the run: the line
// is dropped and counted, the log gets one warning for a series of failures, and the next line is tried
// again. Thread-safe: no.
class MetricsLog {
 public:
  // Appends to an existing file; call cut_back_metrics first when resuming. `files` and `log` must outlive
  // this.
  MetricsLog(FileSystem& files, std::string path, Log& log);
  void write(const Json& record);  // an object
  std::int64_t lost() const { return lost_; }

 private:
  void open();

  FileSystem& files_;
  std::string path_;
  Log& log_;
  std::unique_ptr<OutputFile> file_;
  bool torn_ = false;  // the file does not end with a line break
  bool warned_ = false;
  std::int64_t lost_ = 0;
};

struct MetricsFile {
  std::vector<Json> records;  // in the file's order
  std::int64_t broken = 0;    // lines that are no JSON objects (torn by a kill or a full disk), left out
};
// An absent file has no records.
MetricsFile read_metrics(FileSystem& files, const std::string& path);

// Before a resume from the checkpoint of `step`: removes, atomically, lines of later steps, lines without a
// step and broken lines. Kept lines stay byte for byte. An absent file is fine. Throws Error(data) when the
// disk fails.
void cut_back_metrics(FileSystem& files, const std::string& path, std::int64_t step);

}  // namespace lode
