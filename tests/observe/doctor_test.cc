#include "observe/doctor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace lode {
namespace {

std::string fresh_folder(const std::string& name) {
  const std::string path = testing::TempDir() + "doctor_" + name;
  real_files().remove(path);
  real_files().make_directory(path);
  return path;
}

void put(const std::string& path, const std::string& text) {
  real_files().make_directory(path.substr(0, path.rfind('/')));
  write_file_atomically(real_files(), path, text);
}

// A machine as /proc and /sys would describe it.
std::string machine(const std::string& name, const std::string& flags, const std::string& huge_pages) {
  const std::string root = fresh_folder(name);
  put(root + "/proc/cpuinfo", "processor : 0\nmodel name : Test CPU\nflags : " + flags + "\n");
  put(root + "/proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 33554432 kB\n");
  put(root + "/sys/kernel/mm/transparent_hugepage/enabled", huge_pages);
  return root;
}

DoctorOptions options_for(const std::string& root) {
  DoctorOptions options;
  options.root = root;
  options.path = fresh_folder("disk");
  options.disk_bytes = 5 << 20;
  options.libraries = {{"oneDNN", "2.6.3"}};
  return options;
}

bool warns(const DoctorReport& report, const std::string& part) {
  return std::ranges::any_of(report.warnings,
                             [&](const auto& w) { return w.what.find(part) != std::string::npos; });
}

TEST(Doctor, NamesWhatTheCpuLacksAndItsCost) {
  const DoctorReport report =
      run_doctor(real_files(), options_for(machine("avx2", "avx2 fma f16c", "always [madvise] never\n")));
  EXPECT_EQ(report.system.cpu_model, "Test CPU");
  ASSERT_FALSE(report.missing.empty());
  EXPECT_EQ(report.missing[0].feature, "avx512f");
  EXPECT_FALSE(warns(report, "AVX2"));
  EXPECT_EQ(report.huge_pages, "madvise");
  EXPECT_FALSE(warns(report, "huge pages"));
  EXPECT_NE(report.to_text().find("avx512_bf16: no bf16 products"), std::string::npos);
}

TEST(Doctor, WarningsHaveARemedy) {
  const std::string root = machine("old", "sse4_2", "always madvise [never]\n");
  put(root + "/proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: 524288 kB\n");
  const DoctorReport report = run_doctor(real_files(), options_for(root));
  EXPECT_TRUE(warns(report, "AVX2"));
  EXPECT_TRUE(warns(report, "huge pages"));
  EXPECT_TRUE(warns(report, "only 512"));
  for (const auto& warning : report.warnings) EXPECT_FALSE(warning.remedy.empty()) << warning.what;
}

TEST(Doctor, MeasuresTheDiskAndLeavesNothing) {
  const DoctorOptions options = options_for(machine("disk_ok", "avx2", ""));
  const DoctorReport report = run_doctor(real_files(), options);
  EXPECT_EQ(report.disk.error, "");
  EXPECT_GT(report.disk.tried_bytes, 0u);
  EXPECT_LE(report.disk.tried_bytes, options.disk_bytes);
  EXPECT_GT(report.disk.write_bytes_per_second, 0);
  EXPECT_GT(report.disk.read_bytes_per_second, 0);
  EXPECT_GT(report.disk.free_bytes, 0u);
  EXPECT_TRUE(real_files().list(options.path).empty());
}

TEST(Doctor, AFullOrMissingDiskIsAWarning) {
  DoctorOptions options = options_for(machine("disk_full", "avx2", ""));
  FailingFiles full(real_files(), 3, ENOSPC, false);
  const DoctorReport report = run_doctor(full, options);
  EXPECT_NE(report.disk.error, "");
  EXPECT_TRUE(warns(report, "cannot be written"));
  EXPECT_TRUE(real_files().list(options.path).empty());
  options.path = "/no/such/folder";
  EXPECT_TRUE(warns(run_doctor(real_files(), options), "/no/such/folder cannot be written"));
}

TEST(Doctor, AnUnreadableMachineIsAWarning) {
  const DoctorReport report = run_doctor(real_files(), options_for(fresh_folder("nothing")));
  EXPECT_TRUE(warns(report, "memory cannot be read"));
  EXPECT_NE(report.to_text().find("huge pages   unknown"), std::string::npos);
}

TEST(Doctor, JsonHasEverything) {
  setenv("LC_ALL", "POSIX", 1);
  const DoctorReport report =
      run_doctor(real_files(), options_for(machine("json", "avx2 fma", "[always] madvise\n")));
  unsetenv("LC_ALL");
  const Json json = parse_json(report.to_json().dump(), "doctor");
  EXPECT_EQ(json.at("libraries").at("oneDNN").as_string(), "2.6.3");
  EXPECT_EQ(json.at("huge_pages").as_string(), "always");
  EXPECT_FALSE(json.at("locale").at("utf8").as_bool());
  EXPECT_TRUE(warns(report, "POSIX"));
  EXPECT_GE(json.at("system").at("usable_cores").as_int(), 1);
  EXPECT_EQ(json.at("warnings").size(), report.warnings.size());
}

}  // namespace
}  // namespace lode
