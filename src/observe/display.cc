#include "observe/display.h"

#include <algorithm>
#include <cmath>

#include "core/format.h"

namespace lode {
namespace {

// Length of the valid sequence at the front of `text`, 0 when there is none.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto tail = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return tail(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    // No overlong forms, no surrogates.
    return tail(1, first == 0xE0 ? 0xA0 : 0x80, first == 0xED ? 0x9F : 0xBF) && tail(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    return tail(1, first == 0xF0 ? 0x90 : 0x80, first == 0xF4 ? 0x8F : 0xBF) && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

std::string one_line(std::string_view text) {
  std::string out = repair_utf8(text);
  std::ranges::replace_if(
      out, [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return out;
}

}  // namespace

std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    out += length == 0 ? std::string_view("\xEF\xBF\xBD") : text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string short_count(double value) {
  static constexpr std::string_view kUnits[] = {"", "k", "M", "B", "T"};
  if (!std::isfinite(value)) return "?";
  std::size_t unit = 0;
  // 999.95 would print as 1000.0.
  while (std::abs(value) >= (unit == 0 ? 999.5 : 999.95) && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  if (unit > 0 || (std::abs(value) < 100 && value != std::floor(value)))
    return format("{:.1f}{}", value, kUnits[unit]);
  return format("{:.0f}", value);
}

std::string plain_text(const Json& value) {
  if (value.is_string()) return value.as_string();
  if (value.is_bool()) return value.as_bool() ? "yes" : "no";
  if (value.is_null()) return "-";
  return value.dump();
}

std::string plain_key(std::string_view key) {
  std::string out(key);
  std::ranges::replace(out, '_', ' ');
  return out;
}

std::string columns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], display_width(one_line(row[i])));
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line = " ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string cell = one_line(row[i]);
      line += ' ' + cell;
      if (i + 1 < row.size()) line.append(widths[i] - display_width(cell) + 1, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

std::string two_columns(const std::vector<std::pair<std::string, std::string>>& rows) {
  std::vector<std::vector<std::string>> cells;
  for (const auto& [key, value] : rows) cells.push_back({key, value});
  return columns(cells);
}

}  // namespace lode
