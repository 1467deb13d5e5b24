#include "core/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "core/fail.h"

namespace lode {

struct Log::Impl {
  spdlog::logger logger{"lode"};
};

namespace {

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

Log::Log(bool console, LogLevel level) : impl_(std::make_unique<Impl>()) {
  spdlog::logger& logger = impl_->logger;
  logger.set_level(level_of(level));
  logger.set_error_handler([](const std::string&) {});  // a full disk or a closed pipe must not end a run
  if (!console) return;
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  sink->set_pattern("%v");
  logger.sinks().push_back(std::move(sink));
}

Log::~Log() {
  impl_->logger.flush();
}

void Log::add_file(const std::string& path) {
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    sink->set_pattern("%Y-%m-%d %H:%M:%S %l %v");
    impl_->logger.sinks().push_back(std::move(sink));
    impl_->logger.flush_on(spdlog::level::info);
  } catch (const spdlog::spdlog_ex& error) {
    fail(ErrorKind::data, "{}: the log cannot be written: {}", path, error.what());
  }
}

void Log::write(LogLevel level, std::string_view text) {
  const auto prefix = level == LogLevel::warning ? "warning: " : level == LogLevel::error ? "error: " : "";
  impl_->logger.log(level_of(level), "{}{}", prefix, text);
}

}  // namespace lode
