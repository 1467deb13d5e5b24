#include "core/format.h"

#include <fmt/args.h>
#include <fmt/format.h>

#include "lode/error.h"

namespace lode {

std::string format_args(std::string_view pattern, std::span<const FormatArg> args) {
  fmt::dynamic_format_arg_store<fmt::format_context> store;
  for (const FormatArg& arg : args) {
    std::visit([&store](const auto& value) { store.push_back(value); }, arg);
  }
  try {
    return fmt::vformat(pattern, store);
  } catch (const fmt::format_error& error) {
    throw Error(ErrorKind::internal, std::string(pattern) + ": " + error.what());
  }
}

std::string format_bytes(std::uint64_t bytes) {
  static constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? format("{} B", bytes)
                   : format(value < 10 ? "{:.2f} {}" : "{:.1f} {}", value, kUnits[unit]);
}

}  // namespace lode
