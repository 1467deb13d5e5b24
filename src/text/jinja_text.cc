#include "text/jinja_text.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/unicode.h"

namespace lode::jinja {

Text::Text(std::string bytes, Label label) : bytes_(std::move(bytes)) {
  if (label != Label{} && !bytes_.empty()) runs_.push_back({bytes_.size(), label});
}

void Text::add_run(std::size_t end, const Label& label) {
  const std::size_t covered = runs_.empty() ? 0 : runs_.back().end;
  if (end == covered) return;
  if (!runs_.empty() && runs_.back().label == label) {
    runs_.back().end = end;
  } else {
    runs_.push_back({end, label});
  }
}

Label Text::label_at(std::size_t at) const {
  const auto run = std::ranges::upper_bound(runs_, at, {}, &Run::end);
  return run == runs_.end() ? Label{} : run->label;
}

void Text::append(std::string_view bytes, Label label) {
  if (bytes.empty()) return;
  if (runs_.empty() && label != Label{}) add_run(bytes_.size(), {});
  bytes_ += bytes;
  if (!runs_.empty() || label != Label{}) add_run(bytes_.size(), label);
}

void Text::append(const Text& other, std::size_t begin, std::size_t end) {
  if (begin >= end) return;
  if (other.runs_.empty()) return append(std::string_view(other.bytes_).substr(begin, end - begin));
  const std::size_t base = bytes_.size();
  if (runs_.empty()) add_run(base, {});
  bytes_.append(other.bytes_, begin, end - begin);
  auto run = std::ranges::upper_bound(other.runs_, begin, {}, &Run::end);
  for (; run != other.runs_.end(); ++run) {
    add_run(base + std::min(run->end, end) - begin, run->label);
    if (run->end >= end) break;
  }
}

Text Text::slice(std::size_t begin, std::size_t end) const {
  Text result;
  result.markup_ = markup_;
  result.append(*this, begin, end);
  return result;
}

void Text::stamp(std::int32_t turn, std::int32_t mark) {
  if (empty() || (turn < 0 && mark < 0)) return;
  if (runs_.empty()) add_run(size(), {});
  for (Run& run : runs_) {
    if (run.label.turn < 0) run.label.turn = turn;
    if (run.label.mark < 0) run.label.mark = mark;
  }
}

char32_t read_character(std::string_view text, std::size_t& at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return static_cast<char32_t>(text[at++]);
  utf8proc_int32_t code = -1;
  const auto length =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                       static_cast<utf8proc_ssize_t>(std::min<std::size_t>(4, text.size() - at)), &code);
  if (length <= 0) {
    ++at;
    return 0xFFFD;
  }
  at += static_cast<std::size_t>(length);
  return static_cast<char32_t>(code);
}

std::vector<std::size_t> character_offsets(std::string_view text) {
  std::vector<std::size_t> offsets;
  offsets.reserve(text.size() + 1);
  for (std::size_t at = 0; at < text.size();) {
    offsets.push_back(at);
    read_character(text, at);
  }
  offsets.push_back(text.size());
  return offsets;
}

std::size_t count_characters(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); ++count) read_character(text, at);
  return count;
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7F;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_letter(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_cased_letter(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LT;
}

bool is_decimal_digit(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND;
}

char32_t upper_case(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

char32_t lower_case(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

Range strip_range(std::string_view text, bool left, bool right, const std::string* set) {
  const auto strips = [&](std::size_t begin, std::size_t end) {
    if (set != nullptr) {
      const std::string_view character = text.substr(begin, end - begin);
      for (std::size_t at = 0; at < set->size();) {
        const std::size_t start = at;
        read_character(*set, at);
        if (std::string_view(*set).substr(start, at - start) == character) return true;
      }
      return false;
    }
    std::size_t at = begin;
    return is_space(read_character(text, at));
  };
  Range range{0, text.size()};
  while (left && range.begin < range.end) {
    std::size_t next = range.begin;
    read_character(text, next);
    if (!strips(range.begin, next)) break;
    range.begin = next;
  }
  while (right && range.begin < range.end) {
    std::size_t start = range.end - 1;
    while (start > range.begin && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    if (std::size_t next = start; read_character(text, next), next != range.end) start = range.end - 1;
    if (!strips(start, range.end)) break;
    range.end = start;
  }
  return range;
}

}  // namespace lode::jinja
