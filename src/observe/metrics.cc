#include "observe/metrics.h"

#include <cmath>

#include "core/fail.h"
#include "observe/display.h"

namespace lode {
namespace {

void put_known(Json& record, std::string_view key, double value) {
  if (!std::isnan(value)) record[key] = value;
}

// As it reads back from the file.
Json finite_or_null(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

// Calls visit(line without its break, ended by one) for each line.
template <class Visit>
void for_each_line(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const bool ended = end != std::string_view::npos;
    visit(text.substr(0, end), ended);
    text.remove_prefix(ended ? end + 1 : text.size());
  }
}

// An object, or null when the line is none.
Json parse_line(std::string_view line) {
  try {
    Json record = parse_json(line, "metrics");
    return record.is_object() ? record : Json();
  } catch (const Error&) {
    return Json();
  }
}

}  // namespace

Json to_json(const StepMetrics& m) {
  Json record = Json::object({{"step", m.step},
                              {"epoch", m.epoch},
                              {"loss", finite_or_null(m.loss)},
                              {"learning_rate", finite_or_null(m.learning_rate)},
                              {"grad_norm", finite_or_null(m.grad_norm)},
                              {"tokens", m.tokens},
                              {"samples", m.samples},
                              {"skipped", m.skipped}});
  put_known(record, "loss_scale", m.loss_scale);
  put_known(record, "time_step", m.seconds);
  put_known(record, "time_elapsed", m.elapsed);
  put_known(record, "time_tokens_per_second", m.tokens_per_second);
  put_known(record, "time_samples_per_second", m.samples_per_second);
  put_known(record, "time_mfu", m.mfu);
  put_known(record, "time_cores", m.cores);
  put_known(record, "time_data_wait", m.data_wait);
  if (m.memory > 0) record["time_memory_bytes"] = m.memory;
  if (m.accounted > 0) record["time_accounted_bytes"] = m.accounted;
  return record;
}

Json to_json(const EvalMetrics& m) {
  Json record = Json::object({{"step", m.step},
                              {"epoch", m.epoch},
                              {"eval_set", repair_utf8(m.set)},
                              {"eval_loss", finite_or_null(m.loss)},
                              {"eval_perplexity", finite_or_null(m.perplexity)},
                              {"eval_bits_per_byte", finite_or_null(m.bits_per_byte)},
                              {"eval_token_accuracy", finite_or_null(m.token_accuracy)},
                              {"eval_tokens", m.tokens},
                              {"eval_samples", m.samples}});
  put_known(record, "time_eval", m.seconds);
  return record;
}

Json to_json(const SampleText& m) {
  return Json::object(
      {{"step", m.step}, {"sample_prompt", repair_utf8(m.prompt)}, {"sample_text", repair_utf8(m.text)}});
}

MetricsLog::MetricsLog(FileSystem& files, std::string path, Log& log)
    : files_(files), path_(std::move(path)), log_(log) {}

void MetricsLog::open() {
  const bool filled = files_.exists(path_) && files_.size(path_) > 0;
  torn_ = filled && files_.map(path_)->text().back() != '\n';
  file_ = files_.append(path_);
}

void MetricsLog::write(const Json& record) {
  LODE_ASSERT(record.is_object());
  try {
    if (!file_) open();
    file_->write((torn_ ? "\n" : "") + record.dump() + "\n");
    torn_ = false;
    warned_ = false;
  } catch (const Error& error) {
    ++lost_;
    file_.reset();  // the next line looks at what this one left behind
    if (!warned_) log_.warning("metrics are lost until the disk takes them again: {}", error.what());
    warned_ = true;
  }
}

MetricsFile read_metrics(FileSystem& files, const std::string& path) {
  MetricsFile result;
  if (!files.exists(path)) return result;
  for_each_line(files.read(path), [&](std::string_view line, bool) {
    if (line.empty()) return;
    Json record = parse_line(line);
    if (record.is_null()) {
      ++result.broken;
    } else {
      result.records.push_back(std::move(record));
    }
  });
  return result;
}

void cut_back_metrics(FileSystem& files, const std::string& path, std::int64_t step) {
  if (!files.exists(path)) return;
  const std::string text = files.read(path);
  std::string kept;
  for_each_line(text, [&](std::string_view line, bool ended) {
    if (!ended) return;  // torn, even when it happens to parse
    const Json record = parse_line(line);
    const Json* at = record.find("step");
    if (at != nullptr && at->is_int() && at->as_int() <= step) kept.append(line).push_back('\n');
  });
  if (kept != text) write_file_atomically(files, path, kept);
}

}  // namespace lode
