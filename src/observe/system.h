// The machine and this process, read from /proc and the container's control group.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "core/json.h"

namespace lode {

struct SystemInfo {
  std::string cpu_model;  // as the system names it
  std::vector<std::string>
      features;          // of those that kernels care about, the ones present: "avx2", "avx512f", ...
  int cores = 0;         // logical, in the machine
  int usable_cores = 0;  // affinity, container limit and OMP_NUM_THREADS applied
  std::uint64_t total_memory = 0;  // bytes, container limit applied
  std::uint64_t available_memory =
      0;                           // bytes that can be taken now without swapping, container limit applied
  std::uint64_t memory_limit = 0;  // of the container; 0 = none
  std::string kernel;              // "Linux 6.1.0"
};

// root: put before /proc and /sys paths (for tests). What cannot be read stays empty or 0.
SystemInfo read_system(const std::string& root = "");
Json to_json(const SystemInfo& system);

// Features that read_system looks for, in its order.
const std::vector<std::string>& known_cpu_features();

struct ProcessUse {
  std::uint64_t resident = 0, peak_resident = 0;  // bytes
  double cpu_seconds = 0;                         // user and system, all threads
};
ProcessUse process_use(const std::string& root = "");

// Seconds since this process was started, to a hundredth; NaN when the system does not say.
double seconds_since_start(const std::string& root = "");

// Cores kept busy by this process between two calls.
class CoreMeter {
 public:
  CoreMeter();
  double cores();  // mean since the last call (or since construction)

 private:
  std::chrono::steady_clock::time_point time_;
  double cpu_seconds_;
};

}  // namespace lode
