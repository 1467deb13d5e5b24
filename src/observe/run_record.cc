#include "observe/run_record.h"

#include <cmath>
#include <ctime>

#include "core/fail.h"
#include "observe/display.h"
#include "observe/metrics.h"

namespace lode {
namespace {

Json facts_to_json(const Facts& facts) {
  Json list = Json::array();
  for (const Fact& fact : facts.all()) {
    list.push_back(Json::object({{"name", fact.name},
                                 {"asked", fact.asked},
                                 {"chosen", fact.chosen},
                                 {"why", fact.why},
                                 {"substituted", fact.substituted}}));
  }
  return list;
}

Json counters_to_json(const Facts& facts) {
  Json counters = Json::object();
  for (const auto& [name, value] : facts.counters()) counters[name] = value;
  return counters;
}

Json model_to_json(const RunInfo& info) {
  Json model = info.model.is_object() ? info.model : Json::object();
  model["parameters"] = info.parameters;
  model["trainable_parameters"] = info.trainable_parameters;
  model["flops_per_token"] = info.flops_per_token;
  return model;
}

Json object_or_empty(const Json& value) {
  return value.is_object() ? value : Json::object();
}

double per_second(double amount, double seconds) {
  return seconds > 0 ? amount / seconds : kUnknown;
}

using Rows = std::vector<std::pair<std::string, std::string>>;

Rows rows_of(const Json& object) {
  Rows rows;
  if (!object.is_object()) return rows;
  for (const auto& [key, value] : object.as_object()) rows.emplace_back(plain_key(key), plain_text(value));
  return rows;
}

std::string section(std::string_view title, const Rows& rows) {
  return rows.empty() ? "" : std::string(title) + "\n" + two_columns(rows);
}

std::string facts_table(const Facts& facts) {
  std::vector<std::vector<std::string>> rows = {{"", "", "asked", "chosen", "why"}};
  for (const Fact& fact : facts.all()) {
    rows.push_back({fact.substituted ? "!" : "", fact.name, fact.asked, fact.chosen, fact.why});
  }
  return rows.size() == 1 ? "" : "optimisations\n" + columns(rows);
}

std::string memory_table(const MemoryUse& memory) {
  std::vector<std::vector<std::string>> rows = {{"", "now", "peak"}};
  for (int i = 0; i < kNumMemoryTags; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (memory.peak[at] == 0) continue;
    rows.push_back({std::string(name_of(static_cast<MemoryTag>(i))), format_bytes(memory.current[at]),
                    format_bytes(memory.peak[at])});
  }
  rows.push_back({"together", format_bytes(memory.total_current), format_bytes(memory.total_peak)});
  return "memory\n" + columns(rows);
}

}  // namespace

const BuildInfo& build_info() {
  static const BuildInfo info{LODE_VERSION, LODE_COMPILER, LODE_COMPILE_FLAGS, LODE_BUILD_TYPE};
  return info;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

double mean_mfu(const RunInfo& info, const RunEnd& end) {
  if (!(info.peak_flops > 0) || !(end.seconds > 0) || !(end.flops > 0)) return kUnknown;
  return end.flops / (end.seconds * info.peak_flops);
}

Json to_json(const MemoryUse& memory) {
  Json tags = Json::object();
  for (int i = 0; i < kNumMemoryTags; ++i) {
    const auto at = static_cast<std::size_t>(i);
    tags[name_of(static_cast<MemoryTag>(i))] = Json::object(
        {{"current", std::uint64_t{memory.current[at]}}, {"peak", std::uint64_t{memory.peak[at]}}});
  }
  return Json::object({{"by_tag", tags},
                       {"total", Json::object({{"current", std::uint64_t{memory.total_current}},
                                               {"peak", std::uint64_t{memory.total_peak}}})},
                       {"handed_peak", std::uint64_t{memory.handed_peak}},
                       {"reserved", std::uint64_t{memory.reserved}},
                       {"reserved_peak", std::uint64_t{memory.reserved_peak}}});
}

RunRecord::RunRecord(FileSystem& files, std::string path, RunInfo info, SystemInfo system)
    : files_(files),
      path_(std::move(path)),
      info_(std::move(info)),
      system_(std::move(system)),
      started_(utc_now()) {
  if (info_.start_step == 0 || !files_.exists(path_)) return;
  try {
    const Json former = parse_json(files_.read(path_), path_);
    if (const Json* list = former.find("earlier"); list != nullptr && list->is_array()) earlier_ = *list;
    Json part = Json::object();
    for (const char* key : {"started", "ended", "status", "reason", "step"}) {
      if (const Json* value = former.find(key)) part[key] = *value;
    }
    earlier_.push_back(std::move(part));
  } catch (const Error&) {
    // What an earlier process left is worth a note, not a failure.
  }
}

Json RunRecord::to_json(const Facts& facts, const MemoryUse& memory, const RunEnd* end) const {
  const BuildInfo& build = build_info();
  Json command = Json::array();
  for (const std::string& word : mask_secrets(info_.command_line)) command.push_back(repair_utf8(word));
  Json plan = Json::object();
  for (const auto& [name, bytes] : info_.memory_plan) plan[name] = bytes;

  Json record = Json::object();
  record["status"] = end == nullptr ? "running" : end->exit_status == 0 ? "done" : "ended early";
  record["exit_status"] = end == nullptr ? Json() : Json(end->exit_status);
  record["reason"] = end == nullptr ? Json() : Json(repair_utf8(end->reason));
  record["task"] = info_.task;
  record["output_dir"] = repair_utf8(info_.output_dir);
  record["command_line"] = command;
  record["started"] = started_;
  record["ended"] = end == nullptr ? Json() : Json(utc_now());
  if (earlier_.size() > 0) record["earlier"] = earlier_;
  record["start_step"] = info_.start_step;
  record["total_steps"] = info_.total_steps;
  record["step"] = end == nullptr ? Json() : Json(end->step);
  record["build"] = Json::object({{"version", build.version},
                                  {"compiler", build.compiler},
                                  {"flags", build.flags},
                                  {"build_type", build.build_type}});
  record["hardware"] = lode::to_json(system_);
  record["model"] = model_to_json(info_);
  record["data"] = object_or_empty(info_.data);
  record["tokenizer"] = object_or_empty(info_.tokenizer);
  record["batch"] = object_or_empty(info_.batch);
  record["packing"] = object_or_empty(info_.packing);
  record["optimisations"] = facts_to_json(facts);
  record["counters"] = counters_to_json(facts);
  record["memory_plan"] = plan;
  record["memory_load"] = lode::to_json(info_.memory_load);
  record["memory_steps"] = lode::to_json(memory);
  record["memory"] = lode::to_json(larger_of(info_.memory_load, memory));
  const ProcessUse process = process_use();
  record["process"] =
      Json::object({{"peak_resident_bytes", process.peak_resident}, {"cpu_seconds", process.cpu_seconds}});
  record["peak_flops"] = info_.peak_flops > 0 ? Json(info_.peak_flops) : Json();
  if (end != nullptr) {
    record["training"] =
        Json::object({{"seconds", end->seconds},
                      {"tokens", end->tokens},
                      {"samples", end->samples},
                      {"tokens_per_second", per_second(static_cast<double>(end->tokens), end->seconds)},
                      {"samples_per_second", per_second(static_cast<double>(end->samples), end->seconds)},
                      {"flops", end->flops},
                      {"recomputed_flops", end->recomputed_flops},
                      {"mfu", mean_mfu(info_, *end)},
                      {"lost_metrics_lines", end->lost_metrics}});
    record["results"] = object_or_empty(end->results);
  }
  record["recipe"] = mask_secrets(object_or_empty(info_.recipe));
  return record;
}

void RunRecord::write_start(const Facts& facts, const MemoryUse& memory) {
  write_file_atomically(files_, path_, to_json(facts, memory, nullptr).dump(2) + "\n");
}

void RunRecord::write_end(const Facts& facts, const MemoryUse& memory, const RunEnd& end) {
  write_file_atomically(files_, path_, to_json(facts, memory, &end).dump(2) + "\n");
}

std::string banner(const RunInfo& info, const SystemInfo& system, const Facts& facts) {
  std::string out =
      format("Lodestone {}: {} in {}\n", build_info().version, info.task, repair_utf8(info.output_dir));

  Rows machine = {{"processor", system.cpu_model.empty() ? "unknown" : system.cpu_model}};
  machine.emplace_back("cores", format("{} of {}", system.usable_cores, system.cores));
  machine.emplace_back("memory", format("{} available of {}{}", format_bytes(system.available_memory),
                                        format_bytes(system.total_memory),
                                        system.memory_limit > 0 ? " (container limit)" : ""));
  if (info.peak_flops > 0)
    machine.emplace_back("peak", format("{:.0f} GFLOP/s, measured", info.peak_flops / 1e9));
  out += section("machine", machine);

  Rows model = rows_of(info.model);
  model.emplace_back("parameters",
                     format("{} ({} trainable)", short_count(static_cast<double>(info.parameters)),
                            short_count(static_cast<double>(info.trainable_parameters))));
  model.emplace_back("FLOPs per token", short_count(info.flops_per_token));
  out += section("model", model);
  out += section("data", rows_of(info.data));
  out += section("tokenizer", rows_of(info.tokenizer));
  out += section("packing", rows_of(info.packing));

  Rows batch = rows_of(info.batch);
  batch.emplace_back("steps", info.start_step > 0
                                  ? format("{} of {} done, going on", info.start_step, info.total_steps)
                                  : format("{}", info.total_steps));
  out += section("batch", batch);
  out += facts_table(facts);

  Rows plan;
  std::uint64_t together = 0;
  for (const auto& [name, bytes] : info.memory_plan) {
    plan.emplace_back(name, format_bytes(bytes));
    together += bytes;
  }
  if (!plan.empty()) plan.emplace_back("together", format_bytes(together));
  return out + section("memory plan", plan);
}

std::string summary(const RunInfo& info, const RunEnd& end, const Facts& facts, const MemoryUse& memory) {
  std::string out =
      end.exit_status == 0 ? "finished\n" : format("ended early: {}\n", repair_utf8(end.reason));
  const auto rate = [&](std::int64_t amount) {
    return short_count(per_second(static_cast<double>(amount), end.seconds));
  };
  Rows rows = {{"steps", format("{} of {}", end.step, info.total_steps)},
               {"tokens", format("{} in {:.1f} s, {} tokens/s, {} samples/s", end.tokens, end.seconds,
                                 rate(end.tokens), rate(end.samples))}};
  if (const double mfu = mean_mfu(info, end); !std::isnan(mfu)) {
    rows.emplace_back(
        "MFU",
        format("{:.1f} % = {:.3f} TFLOP of matrix products / {:.1f} s / measured peak ({:.0f} GFLOP/s)",
               100 * mfu, end.flops / 1e12, end.seconds, info.peak_flops / 1e9));
  }
  if (end.recomputed_flops > 0) {
    rows.emplace_back("recomputed",
                      format("{:.3f} TFLOP, {:.1f} % of those of the model; not counted in MFU",
                             end.recomputed_flops / 1e12, 100 * end.recomputed_flops / end.flops));
  }
  for (auto& row : rows_of(end.results)) rows.push_back(std::move(row));
  rows.emplace_back("peak resident memory", format_bytes(process_use().peak_resident));
  if (end.lost_metrics > 0) rows.emplace_back("metrics lines lost", format("{}", end.lost_metrics));
  rows.emplace_back("results in", info.output_dir);
  out += two_columns(rows);
  out += memory_table(larger_of(info.memory_load, memory));
  out += section("counters", rows_of(counters_to_json(facts)));
  return out;
}

}  // namespace lode
