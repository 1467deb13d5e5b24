// run.json, the start banner and the summary at the end: what a run was, on what, and what really ran.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/facts.h"
#include "core/file.h"
#include "core/json.h"
#include "core/memory.h"
#include "observe/system.h"

namespace lode {

struct BuildInfo {
  std::string version, compiler, flags, build_type;
};
const BuildInfo& build_info();

// What is known when the run starts. `model`, `data`, `tokenizer`, `batch` and `packing` are objects whose
// members are shown as they are: keys with _ shown as spaces, nested values as JSON. Fingerprints belong into
// `data` and `tokenizer`.
struct RunInfo {
  std::vector<std::string> command_line;
  std::string output_dir, task;  // task: "pretrain", ...
  std::int64_t parameters = 0, trainable_parameters = 0;
  double flops_per_token = 0;  // matrix FLOPs of a training step per token: 2*M*N*K a product, causal
                               // attention at half its square, head included, recompute not counted
  double peak_flops = 0;       // FLOP/s measured on this machine; 0 = not measured, then MFU is unknown
  std::int64_t total_steps = 0, start_step = 0;  // start_step: of the checkpoint resumed from
  Json model, data, tokenizer, batch, packing;
  Json recipe;                                                     // resolved, an object
  std::vector<std::pair<std::string, std::uint64_t>> memory_plan;  // bytes by name, expected
  MemoryUse memory_load;                                           // when the weights were there
};

// What is known when it ends.
struct RunEnd {
  int exit_status = 0;
  std::string reason;  // "done", "preempted: SIGTERM", the error's message, ...
  double seconds = 0;  // of training in this process, on the monotonic clock
  std::int64_t step = 0, tokens = 0,
               samples = 0;     // step reached; tokens and samples trained on by this process
  double flops = 0;             // matrix FLOPs done by this process, counted as flops_per_token is
  double recomputed_flops = 0;  // done again by backwards, not among them
  std::int64_t lost_metrics = 0;
  Json results;  // object, shown as it is: best checkpoint, final losses, ...
};

double mean_mfu(const RunInfo& info, const RunEnd& end);  // NaN when the peak is unknown or nothing ran

// Builds the record and writes it atomically at the start and at the end. A run that is killed leaves
// "running".
class RunRecord {
 public:
  RunRecord(FileSystem& files, std::string path, RunInfo info, SystemInfo system);

  // Measured after the first step, so that it does not delay it.
  void set_peak_flops(double flops_per_second) { info_.peak_flops = flops_per_second; }

  // memory: with peaks since the weights were there (RunInfo::memory_load has those before). Failures throw
  // Error(data): before the first step a run must be able to write its folder.
  void write_start(const Facts& facts, const MemoryUse& memory);
  void write_end(const Facts& facts, const MemoryUse& memory, const RunEnd& end);

  Json to_json(const Facts& facts, const MemoryUse& memory, const RunEnd* end) const;

 private:
  FileSystem& files_;
  std::string path_;
  RunInfo info_;
  SystemInfo system_;
  std::string started_;
  Json earlier_;  // former processes of this run, when it is resumed
};

// Plain text tables. Facts that were substituted are marked with "!".
std::string banner(const RunInfo& info, const SystemInfo& system, const Facts& facts);
std::string summary(const RunInfo& info, const RunEnd& end, const Facts& facts, const MemoryUse& memory);

// {"by_tag": {tag: {"current", "peak"}}, "total": {"current", "peak"}, "handed_peak", "reserved",
// "reserved_peak"}
Json to_json(const MemoryUse& memory);
std::string utc_now();  // "2024-05-31T12:00:00Z"

// Secrets. A name is secret when one of its words (parted by anything but letters and digits) contains
// password, passwd, secret or credential, or ends in token or key: HF_TOKEN, hub_token, api-key; not
// tokenizer_path or max_tokens.
bool is_secret_name(std::string_view name);
// Values of secret names in "name=value", "--name=value" and "--name value" become ***, and so do user names
// and passwords in addresses and values that start like a well-known service's token.
std::vector<std::string> mask_secrets(const std::vector<std::string>& arguments);
Json mask_secrets(const Json& value);  // members with secret names, at any depth

}  // namespace lode
