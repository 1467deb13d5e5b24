// The log: lines for people, on standard error and, when a run asks for it, in its log file. A failing sink
// is dropped, never raised: logging must not end a run.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/format.h"

namespace lode {

enum class LogLevel { debug, info, warning, error };

class Log {
 public:
  // console: also write to standard error.
  explicit Log(bool console = true, LogLevel level = LogLevel::info);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void add_file(const std::string& path);  // appends; throws Error(data) when it cannot be opened
  void write(LogLevel level, std::string_view text);

  template <class... Args>
  void info(std::string_view pattern, const Args&... args) {
    write(LogLevel::info, format(pattern, args...));
  }
  template <class... Args>
  void warning(std::string_view pattern, const Args&... args) {
    write(LogLevel::warning, format(pattern, args...));
  }
  template <class... Args>
  void error(std::string_view pattern, const Args&... args) {
    write(LogLevel::error, format(pattern, args...));
  }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lode
