// Text formatting with std::format's syntax ("{}", "{:.3f}", "{:>8}"), without a formatting library's
// headers.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace lode {

using FormatArg = std::variant<bool, std::int64_t, std::uint64_t, double, std::string_view>;

std::string format_args(std::string_view pattern, std::span<const FormatArg> args);

namespace detail {
template <class T>
FormatArg to_format_arg(const T& value) {
  if constexpr (std::same_as<T, bool>) {
    return value;
  } else if constexpr (std::signed_integral<T> && !std::same_as<T, char>) {
    return static_cast<std::int64_t>(value);
  } else if constexpr (std::unsigned_integral<T>) {
    return static_cast<std::uint64_t>(value);
  } else if constexpr (std::floating_point<T>) {
    return static_cast<double>(value);
  } else {
    return std::string_view(value);
  }
}
}  // namespace detail

// Arguments are bool, integers, floating point numbers and anything a string_view can be made from.
// A pattern that does not fit its arguments throws Error(internal).
template <class... Args>
std::string format(std::string_view pattern, const Args&... args) {
  const FormatArg list[] = {detail::to_format_arg(args)..., FormatArg(false)};
  return format_args(pattern, std::span<const FormatArg>(list, sizeof...(Args)));
}

std::string format_bytes(std::uint64_t bytes);  // "1.5 GiB"

}  // namespace lode
