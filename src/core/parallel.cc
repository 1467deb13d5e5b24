#include "core/parallel.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>

namespace lode {
namespace {

// CPU bandwidth limit of the container in cores (cgroup v2, then v1); 0 = none.
double container_cores() {
  double quota = 0, period = 0;
  if (std::ifstream file("/sys/fs/cgroup/cpu.max"); file) {
    std::string text;
    file >> text >> period;
    if (text != "max") quota = std::atof(text.c_str());
  } else {
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") >> quota;
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

}  // namespace

int available_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  if (const double limit = container_cores(); limit > 0) {
    cores = std::min(cores, std::max(1, static_cast<int>(std::ceil(limit))));
  }
  if (const char* wanted = std::getenv("OMP_NUM_THREADS")) {
    if (const int n = std::atoi(wanted); n > 0) cores = std::min(cores, n);
  }
  return std::max(cores, 1);
}

}  // namespace lode
