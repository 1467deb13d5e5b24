#include "observe/doctor.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>

#include "core/fail.h"

namespace lode {
namespace {

struct FeatureCost {
  const char* feature;
  const char* cost;
};

// In the order of their weight.
constexpr FeatureCost kX86Costs[] = {
    {"avx2", "kernels run in the portable form, several times slower"},
    {"fma", "kernels run in the portable form, several times slower"},
    {"avx512f", "matrix products reach about half the speed; bf16 is widened to f32"},
    {"avx512_bf16", "no bf16 products: bf16: auto trains in f32, at about half the speed"},
    {"avx512_vnni", "no fast int8 products"},
    {"amx_bf16", "no matrix tiles: bf16 products at the speed of AVX-512"},
};

std::string read_small(FileSystem& files, const std::string& path) {
  try {
    return files.exists(path) ? files.read(path) : "";
  } catch (const Error&) {
    return "";
  }
}

// "always [madvise] never": the choice in brackets.
std::string bracketed(const std::string& text) {
  const std::size_t open = text.find('[');
  const std::size_t close = text.find(']', open == std::string::npos ? 0 : open);
  if (open == std::string::npos || close == std::string::npos) return "";
  return text.substr(open + 1, close - open - 1);
}

std::int64_t soft_limit(__rlimit_resource resource) {
  rlimit limit;
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return -1;
  return static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, INT64_MAX));
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::max(1e-9, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}

void measure_disk(FileSystem& files, const DoctorOptions& options, DiskSpeed& disk) {
  const std::string path = join_path(options.path, format(".lode-doctor-{}", static_cast<int>(::getpid())));
  try {
    std::vector<std::byte> block(4 << 20);
    for (std::size_t i = 0; i < block.size(); ++i) block[i] = static_cast<std::byte>(i * 2654435761u >> 13);
    auto begin = std::chrono::steady_clock::now();
    const auto file = files.create(path);
    while (disk.tried_bytes < options.disk_bytes && seconds_since(begin) < options.disk_seconds) {
      const std::size_t count = std::min<std::uint64_t>(block.size(), options.disk_bytes - disk.tried_bytes);
      file->write(std::span<const std::byte>(block.data(), count));
      disk.tried_bytes += count;
    }
    file->sync();
    file->close();
    disk.write_bytes_per_second = static_cast<double>(disk.tried_bytes) / seconds_since(begin);
    begin = std::chrono::steady_clock::now();
    const std::string text = files.read(path);
    disk.read_bytes_per_second = static_cast<double>(text.size()) / seconds_since(begin);
    if (text.size() != disk.tried_bytes) disk.error = "read back less than was written";
  } catch (const Error& e) {
    disk.error = e.what();
  }
  try {
    files.remove(path);
  } catch (const Error& e) {
    if (disk.error.empty()) disk.error = e.what();
  }
}

void look_at_cpu(DoctorReport& report) {
  const auto& features = report.system.features;
  const auto has = [&](const char* name) { return std::ranges::find(features, name) != features.end(); };
  if (!has("asimd")) {
    for (const FeatureCost& item : kX86Costs) {
      if (!has(item.feature)) report.missing.push_back({item.feature, item.cost});
    }
    if (!has("avx2")) {
      report.warnings.push_back(
          {"the CPU (as this machine presents it) has no AVX2",
           "use another machine; in a virtual one, pass the host's CPU features through"});
    }
  }
  const SystemInfo& system = report.system;
  if (system.usable_cores < system.cores) {
    const char* threads = std::getenv("OMP_NUM_THREADS");
    report.warnings.push_back(
        {format("{} of {} cores can be used", system.usable_cores, system.cores),
         threads ? format("OMP_NUM_THREADS is {}: unset it for all of them", threads)
                 : "raise the container's CPU limit or the affinity mask, if more are wanted"});
  }
}

void look_at_memory(DoctorReport& report) {
  if (report.huge_pages == "never") {
    report.warnings.push_back(
        {"transparent huge pages are off: the first touch of memory is up to 100 times slower",
         "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root, on the host)"});
  }
  constexpr std::uint64_t kSmall = std::uint64_t{2} << 30;
  if (report.system.total_memory == 0) {
    report.warnings.push_back({"the size of memory cannot be read", "mount /proc"});
  } else if (report.system.available_memory < kSmall) {
    report.warnings.push_back(
        {format("only {} of memory are available", format_bytes(report.system.available_memory)),
         report.system.memory_limit > 0 ? "raise the container's memory limit"
                                        : "end other programs, or train a smaller model"});
  }
}

void look_at_disk(DoctorReport& report) {
  const DiskSpeed& disk = report.disk;
  if (!disk.error.empty()) {
    report.warnings.push_back({format("{} cannot be written and read: {}", disk.path, disk.error),
                               "choose a folder that this user may write, with free space (--path)"});
    return;
  }
  if (disk.free_bytes < (std::uint64_t{2} << 30)) {
    report.warnings.push_back(
        {format("{} has only {} free", disk.path, format_bytes(disk.free_bytes)),
         "free some space, or choose another output_dir; save_total_limit bounds checkpoints"});
  }
  if (disk.write_bytes_per_second < 50e6) {
    report.warnings.push_back({format("writing to {} is slow ({}/s)", disk.path,
                                      format_bytes(static_cast<std::uint64_t>(disk.write_bytes_per_second))),
                               "put output_dir and LODE_CACHE on a local disk, or save less often"});
  }
}

void look_at_limits(DoctorReport& report) {
  if (report.open_files >= 0 && report.open_files < 1024) {
    report.warnings.push_back(
        {format("only {} open files are allowed", report.open_files), "ulimit -n 4096"});
  }
  if (report.file_size >= 0) {
    report.warnings.push_back(
        {format("files may not grow above {}", format_bytes(static_cast<std::uint64_t>(report.file_size))),
         "ulimit -f unlimited"});
  }
  if (report.address_space >= 0) {
    report.warnings.push_back(
        {format("address space is limited to {}; memory arenas and mapped files need more than is used",
                format_bytes(static_cast<std::uint64_t>(report.address_space))),
         "ulimit -v unlimited"});
  }
  if (!report.utf8) {
    report.warnings.push_back(
        {format("the locale ({}) is not UTF-8: text of other scripts may look wrong on this terminal",
                report.locale.empty() ? "none" : report.locale),
         "export LC_ALL=C.UTF-8"});
  }
}

void read_locale(DoctorReport& report) {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value && *value) {
      report.locale = value;
      break;
    }
  }
  std::string lower = report.locale;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  report.utf8 = lower.find("utf-8") != std::string::npos || lower.find("utf8") != std::string::npos;
}

std::string limit_text(std::int64_t value) {
  return value < 0 ? "unlimited" : format("{}", value);
}
Json limit_json(std::int64_t value) {
  return value < 0 ? Json() : Json(value);
}

}  // namespace

DoctorReport run_doctor(FileSystem& files, const DoctorOptions& options) {
  DoctorReport report;
  report.system = read_system(options.root);
  report.libraries = options.libraries;
  report.huge_pages =
      bracketed(read_small(files, options.root + "/sys/kernel/mm/transparent_hugepage/enabled"));
  report.open_files = soft_limit(RLIMIT_NOFILE);
  report.locked_memory = soft_limit(RLIMIT_MEMLOCK);
  report.file_size = soft_limit(RLIMIT_FSIZE);
  report.address_space = soft_limit(RLIMIT_AS);
  read_locale(report);
  report.disk.path = options.path;
  struct statvfs space;
  if (::statvfs(options.path.c_str(), &space) == 0) {
    report.disk.free_bytes = static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize;
  }
  measure_disk(files, options, report.disk);
  look_at_cpu(report);
  look_at_memory(report);
  look_at_disk(report);
  look_at_limits(report);
  return report;
}

Json DoctorReport::to_json() const {
  Json missing_json = Json::array(), warnings_json = Json::array(), libraries_json = Json::object();
  for (const Missing& item : missing) {
    missing_json.push_back(Json::object({{"feature", item.feature}, {"cost", item.cost}}));
  }
  for (const Warning& item : warnings) {
    warnings_json.push_back(Json::object({{"what", item.what}, {"remedy", item.remedy}}));
  }
  for (const auto& [name, version] : libraries) libraries_json[name] = version;
  return Json::object({{"system", lode::to_json(system)},
                       {"missing", missing_json},
                       {"huge_pages", huge_pages.empty() ? Json() : Json(huge_pages)},
                       {"disk", Json::object({{"path", disk.path},
                                              {"free_bytes", disk.free_bytes},
                                              {"measured_bytes", disk.tried_bytes},
                                              {"write_bytes_per_second", disk.write_bytes_per_second},
                                              {"read_bytes_per_second", disk.read_bytes_per_second},
                                              {"error", disk.error.empty() ? Json() : Json(disk.error)}})},
                       {"limits", Json::object({{"open_files", limit_json(open_files)},
                                                {"locked_memory_bytes", limit_json(locked_memory)},
                                                {"file_size_bytes", limit_json(file_size)},
                                                {"address_space_bytes", limit_json(address_space)}})},
                       {"locale", Json::object({{"name", locale}, {"utf8", utf8}})},
                       {"libraries", libraries_json},
                       {"warnings", warnings_json}});
}

std::string DoctorReport::to_text() const {
  std::string text;
  const auto line = [&](std::string_view name, const std::string& value) {
    text += format("{:<12} {}\n", name, value);
  };
  std::string features;
  for (const std::string& feature : system.features) features += (features.empty() ? "" : " ") + feature;
  line("cpu", system.cpu_model.empty() ? "unknown" : system.cpu_model);
  line("features", features.empty() ? "none that kernels use" : features);
  for (const Missing& item : missing) line("  lacks", format("{}: {}", item.feature, item.cost));
  line("cores", format("{} usable of {}", system.usable_cores, system.cores));
  line("memory",
       format("{} available of {}{}", format_bytes(system.available_memory),
              format_bytes(system.total_memory), system.memory_limit > 0 ? " (the container's limit)" : ""));
  line("huge pages", huge_pages.empty() ? "unknown" : huge_pages);
  if (disk.error.empty()) {
    line("disk", format("{}: {} free, write {}/s with fsync, read {}/s (mostly from memory)", disk.path,
                        format_bytes(disk.free_bytes),
                        format_bytes(static_cast<std::uint64_t>(disk.write_bytes_per_second)),
                        format_bytes(static_cast<std::uint64_t>(disk.read_bytes_per_second))));
  } else {
    line("disk", format("{}: not measured", disk.path));
  }
  line("limits",
       format("open files {}, locked memory {}, file size {}, address space {}", limit_text(open_files),
              limit_text(locked_memory), limit_text(file_size), limit_text(address_space)));
  line("locale", locale.empty() ? "none" : locale);
  line("kernel", system.kernel);
  for (const auto& [name, version] : libraries) line(name, version);
  if (warnings.empty()) return text + "\nNothing to complain about.\n";
  text += format("\n{} {}:\n", warnings.size(), warnings.size() == 1 ? "warning" : "warnings");
  for (const Warning& item : warnings) text += format("- {}\n  -> {}\n", item.what, item.remedy);
  return text;
}

}  // namespace lode
