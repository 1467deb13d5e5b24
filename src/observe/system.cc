#include "observe/system.h"

#include <sys/resource.h>
#include <sys/utsname.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <unordered_set>

#include "core/fail.h"
#include "core/file.h"
#include "core/format.h"
#include "core/parallel.h"

namespace lode {
namespace {

// Empty when there is none or it cannot be read.
std::string read_or_empty(const std::string& path) {
  try {
    return real_files().exists(path) ? real_files().read(path) : "";
  } catch (const Error&) {
    return "";
  }
}

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

// Value of the first line "key : value" (or "key value"); empty when absent.
std::string_view value_of(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(key)) {
      const std::string_view rest = trim(line.substr(key.size()));
      if (rest.starts_with(':')) return trim(rest.substr(1));
      if (line.size() > key.size() && line[key.size()] == ' ') return rest;
    }
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return {};
}

// The number at the front; 0 when there is none ("max").
std::uint64_t number_in(std::string_view text) {
  text = trim(text);
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

struct GroupMemory {
  std::uint64_t limit = 0, used = 0;  // limit 0 = none; used without caches that can be dropped
};

void apply_limit(GroupMemory& memory, std::uint64_t limit, std::uint64_t current, std::uint64_t cached) {
  // Version 1 says "no limit" with a number near 2^63.
  if (limit == 0 || limit >= (std::uint64_t{1} << 60)) return;
  if (memory.limit != 0 && memory.limit <= limit) return;
  memory = {limit, current - std::min(current, cached)};
}

// The tightest limit on the way from this process's control group to the root.
GroupMemory group_memory(const std::string& root) {
  GroupMemory memory;
  const std::string groups = read_or_empty(root + "/proc/self/cgroup");
  std::string path(value_of(groups, "0:"));  // "0::/a/b"
  for (;;) {
    const std::string folder = root + "/sys/fs/cgroup" + (path == "/" ? "" : path);
    apply_limit(memory, number_in(read_or_empty(folder + "/memory.max")),
                number_in(read_or_empty(folder + "/memory.current")),
                number_in(value_of(read_or_empty(folder + "/memory.stat"), "inactive_file")));
    if (path.empty() || path == "/") break;
    path.erase(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  }
  const std::string first_version = root + "/sys/fs/cgroup/memory";
  apply_limit(memory, number_in(read_or_empty(first_version + "/memory.limit_in_bytes")),
              number_in(read_or_empty(first_version + "/memory.usage_in_bytes")),
              number_in(value_of(read_or_empty(first_version + "/memory.stat"), "total_inactive_file")));
  return memory;
}

void read_cpu(SystemInfo& info, const std::string& root) {
  const std::string text = read_or_empty(root + "/proc/cpuinfo");
  info.cpu_model = value_of(text, "model name");
  if (info.cpu_model.empty()) info.cpu_model = value_of(text, "Model");  // 64-bit ARM boards
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) info.cores += line.starts_with("processor") ? 1 : 0;

  std::string_view flags = value_of(text, "flags");
  if (flags.empty()) flags = value_of(text, "Features");
  std::istringstream words{std::string(flags)};
  std::unordered_set<std::string> present;
  for (std::string word; words >> word;) present.insert(word);
  for (const std::string& feature : known_cpu_features()) {
    if (present.contains(feature)) info.features.push_back(feature);
  }
}

}  // namespace

const std::vector<std::string>& known_cpu_features() {
  static const std::vector<std::string> features = {
      "sse4_2",   "avx",      "f16c",     "fma",         "avx2",        "avx_vnni",    "avx512f",
      "avx512bw", "avx512vl", "avx512dq", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile",
      "amx_int8", "amx_bf16", "asimd",    "bf16",        "i8mm",        "sve"};
  return features;
}

SystemInfo read_system(const std::string& root) {
  SystemInfo info;
  read_cpu(info, root);
  info.usable_cores = available_threads();
  const std::string memory = read_or_empty(root + "/proc/meminfo");
  info.total_memory = number_in(value_of(memory, "MemTotal")) * 1024;
  info.available_memory = number_in(value_of(memory, "MemAvailable")) * 1024;
  const GroupMemory group = group_memory(root);
  if (group.limit > 0 && group.limit < info.total_memory) {
    info.memory_limit = group.limit;
    info.total_memory = group.limit;
    info.available_memory = std::min(info.available_memory, group.limit - std::min(group.limit, group.used));
  }
  utsname name;
  if (::uname(&name) == 0) info.kernel = format("{} {}", name.sysname, name.release);
  return info;
}

Json to_json(const SystemInfo& system) {
  Json features = Json::array();
  for (const std::string& feature : system.features) features.push_back(feature);
  return Json::object({{"cpu_model", system.cpu_model},
                       {"cpu_features", features},
                       {"cores", system.cores},
                       {"usable_cores", system.usable_cores},
                       {"memory_bytes", system.total_memory},
                       {"memory_available_bytes", system.available_memory},
                       {"memory_limit_bytes", system.memory_limit > 0 ? Json(system.memory_limit) : Json()},
                       {"kernel", system.kernel}});
}

ProcessUse process_use(const std::string& root) {
  ProcessUse use;
  const std::string status = read_or_empty(root + "/proc/self/status");
  use.resident = number_in(value_of(status, "VmRSS")) * 1024;
  use.peak_resident = std::max(use.resident, number_in(value_of(status, "VmHWM")) * 1024);
  rusage usage;
  if (::getrusage(RUSAGE_SELF, &usage) == 0) {
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    use.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }
  return use;
}

double seconds_since_start(const std::string& root) {
  // Field 22 of stat, counted behind the command's name, which may hold anything up to the last parenthesis.
  const std::string stat = read_or_empty(root + "/proc/self/stat");
  const auto name_end = stat.rfind(')');
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (name_end == std::string::npos) return kNone;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  double uptime = 0;
  std::istringstream(read_or_empty(root + "/proc/uptime")) >> uptime;
  const double ticks = std::strtod(field.c_str(), nullptr);
  if (ticks <= 0 || uptime <= 0) return kNone;
  return uptime - ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

CoreMeter::CoreMeter() : time_(std::chrono::steady_clock::now()), cpu_seconds_(process_use().cpu_seconds) {}

double CoreMeter::cores() {
  const auto now = std::chrono::steady_clock::now();
  const double cpu_seconds = process_use().cpu_seconds;
  const double elapsed = std::chrono::duration<double>(now - time_).count();
  const double cores = elapsed > 0 ? (cpu_seconds - cpu_seconds_) / elapsed : 0;
  time_ = now;
  cpu_seconds_ = cpu_seconds;
  return cores;
}

}  // namespace lode
