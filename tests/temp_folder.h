// A folder for one test, removed with everything in it at the end.
#pragma once

#include <cstdlib>
#include <string>

#include "core/fail.h"
#include "core/file.h"

namespace lode {

class TempFolder {
 public:
  TempFolder() {
    // In memory where possible: some disks flush at each rewrite of a file.
    const char* base = std::getenv("TMPDIR");
    if (base == nullptr) base = real_files().is_directory("/dev/shm") ? "/dev/shm" : "/tmp";
    std::string pattern = join_path(base, "lode-test-XXXXXX");
    if (mkdtemp(pattern.data()) == nullptr) fail(ErrorKind::data, "{}: cannot make a folder", pattern);
    path_ = pattern;
  }
  ~TempFolder() {
    try {
      real_files().remove(path_);
    } catch (const Error&) {  // a leftover folder fails no test
    }
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return join_path(path_, name); }

 private:
  std::string path_;
};

// The message of the lode::Error that `body` throws; "" when it throws none.
template <class F>
std::string error_of(F&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

template <class F>
ErrorKind kind_of(F&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.kind();
  }
  fail(ErrorKind::internal, "no error was raised");
}

}  // namespace lode
