#include "observe/system.h"

#include <algorithm>

#include "core/file.h"
#include "gtest/gtest.h"
#include "temp_folder.h"

namespace lode {
namespace {

class FakeRoot {
 public:
  void put(const std::string& path, std::string_view text) {
    const std::string full = folder_.path() + path;
    real_files().make_directory(full.substr(0, full.rfind('/')));
    real_files().create(full)->write(text);
  }
  SystemInfo read() const { return read_system(folder_.path()); }
  std::string path() const { return folder_.path(); }

 private:
  TempFolder folder_;
};

void put_machine(FakeRoot& root) {
  root.put("/proc/cpuinfo",
           "processor\t: 0\nmodel name\t: Test CPU @ 2GHz\nflags\t\t: fpu avx2 avx512f amx_bf16 avx_vnni\n\n"
           "processor\t: 1\nmodel name\t: Test CPU @ 2GHz\nflags\t\t: fpu avx2\n");
  root.put("/proc/meminfo", "MemTotal:        8000000 kB\nMemFree:  10 kB\nMemAvailable:    4000000 kB\n");
}

TEST(System, ReadsTheMachine) {
  FakeRoot root;
  put_machine(root);
  const SystemInfo info = root.read();
  EXPECT_EQ(info.cpu_model, "Test CPU @ 2GHz");
  EXPECT_EQ(info.cores, 2);
  EXPECT_EQ(info.features, (std::vector<std::string>{"avx2", "avx_vnni", "avx512f", "amx_bf16"}));
  EXPECT_EQ(info.total_memory, 8000000ULL * 1024);
  EXPECT_EQ(info.available_memory, 4000000ULL * 1024);
  EXPECT_EQ(info.memory_limit, 0U);
  EXPECT_GE(info.usable_cores, 1);
}

TEST(System, TightestContainerLimitCounts) {
  FakeRoot root;
  put_machine(root);
  root.put("/proc/self/cgroup", "0::/a/b\n");
  root.put("/sys/fs/cgroup/a/b/memory.max", "max\n");
  root.put("/sys/fs/cgroup/a/memory.max", "1000000\n");
  root.put("/sys/fs/cgroup/a/memory.current", "600000\n");
  root.put("/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 200000\n");
  root.put("/sys/fs/cgroup/memory.max", "2000000\n");
  const SystemInfo info = root.read();
  EXPECT_EQ(info.memory_limit, 1000000U);
  EXPECT_EQ(info.total_memory, 1000000U);
  EXPECT_EQ(info.available_memory, 600000U);  // the limit less what is used and cannot be dropped
}

TEST(System, FirstVersionOfControlGroups) {
  FakeRoot root;
  put_machine(root);
  root.put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(root.read().memory_limit, 0U);
  root.put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "5000000\n");
  root.put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "9000000\n");
  EXPECT_EQ(root.read().memory_limit, 5000000U);
  EXPECT_EQ(root.read().available_memory, 0U);
}

TEST(System, NothingReadableIsNotAnError) {
  FakeRoot root;
  const SystemInfo info = root.read();
  EXPECT_EQ(info.cpu_model, "");
  EXPECT_EQ(info.total_memory, 0U);
  EXPECT_EQ(to_json(info).at("cpu_features").size(), 0U);
  EXPECT_TRUE(to_json(info).at("memory_limit_bytes").is_null());
  EXPECT_EQ(process_use(root.path()).resident, 0U);
}

TEST(System, ThisProcess) {
  const ProcessUse before = process_use();
  EXPECT_GT(before.resident, 100U * 1024);
  EXPECT_GE(before.peak_resident, before.resident);
  CoreMeter meter;
  volatile double sum = 0;
  while (process_use().cpu_seconds - before.cpu_seconds < 0.02) sum = sum + 1;
  EXPECT_GT(meter.cores(), 0);
}

}  // namespace
}  // namespace lode
