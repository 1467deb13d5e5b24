// `lode doctor`: whether this machine, as this process may use it, is fit for training, and what each lacking
// thing costs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "observe/system.h"

namespace lode {

struct DoctorOptions {
  std::string path = ".";                                      // folder whose disk is measured
  std::uint64_t disk_bytes = std::uint64_t{64} << 20;          // written at most, removed afterwards
  double disk_seconds = 2;                                     // stop writing after this long
  std::vector<std::pair<std::string, std::string>> libraries;  // name, version
  std::string root;                                            // put before /proc and /sys paths (for tests)
};

struct DiskSpeed {
  std::string path;
  std::uint64_t free_bytes = 0;
  std::uint64_t tried_bytes = 0;
  double write_bytes_per_second = 0;  // with fsync at the end
  double read_bytes_per_second = 0;   // just after writing: mostly from memory
  std::string error;                  // why it could not be measured; "" when it was
};

struct DoctorReport {
  struct Missing {
    std::string feature, cost;
  };
  struct Warning {
    std::string what, remedy;
  };

  SystemInfo system;
  std::vector<Missing> missing;  // CPU features
  std::string huge_pages;        // "always", "madvise", "never" or "" when unknown
  DiskSpeed disk;
  std::int64_t open_files = 0, locked_memory = 0, file_size = 0, address_space = 0;  // soft limits; -1: none
  std::string locale;
  bool utf8 = false;
  std::vector<std::pair<std::string, std::string>> libraries;
  std::vector<Warning> warnings;

  Json to_json() const;
  std::string to_text() const;
};

// Never throws because of what it finds: what cannot be read or measured is a warning. Writes one temporary
// file in `path`.
DoctorReport run_doctor(FileSystem& files, const DoctorOptions& options);

}  // namespace lode
