#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "core/fail.h"
#include "text/unicode_gaps.h"

namespace lode::text {
namespace {

bool is_ascii(std::string_view text) {
  std::size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if (word & 0x8080808080808080u) return false;
  }
  for (; i < text.size(); i++) {
    if (text[i] & 0x80) return false;
  }
  return true;
}

// Range of the byte after `lead`, and how many bytes follow; 0 for a byte that starts nothing.
struct Lead {
  int trailing = 0;
  std::uint8_t low = 0x80, high = 0xBF;
};

Lead classify(std::uint8_t lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return {1};
  if (lead == 0xE0) return {2, 0xA0, 0xBF};
  if (lead == 0xED) return {2, 0x80, 0x9F};
  if (lead >= 0xE1 && lead <= 0xEF) return {2};
  if (lead == 0xF0) return {3, 0x90, 0xBF};
  if (lead == 0xF4) return {3, 0x80, 0x8F};
  if (lead >= 0xF1 && lead <= 0xF3) return {3};
  return {};
}

struct Alphabet {
  std::array<char32_t, 256> characters{};
  std::array<std::int16_t, 0x144> bytes{};
  Alphabet() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; b++) {
      const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      characters[b] = printable ? static_cast<char32_t>(b) : next++;
      bytes[characters[b]] = static_cast<std::int16_t>(b);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

template <class Table>
auto find_range(const Table& table, char32_t c) {
  const auto at = std::upper_bound(table.begin(), table.end(), c,
                                   [](char32_t value, const auto& range) { return value < range.first; });
  return at == table.begin() || c > (at - 1)->last ? table.end() : at - 1;
}

// Combining class and composition as the reference's older tables have them.
int combining_class(char32_t c) {
  if (c < 0x300) return 0;
  if (find_range(kLateMarks, c) != kLateMarks.end()) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

// What the reference's StripAccents removes.
bool is_stripped_mark(char32_t c) {
  if (c < 0x300) return false;
  if (const auto other = find_range(kOtherMarks, c); other != kOtherMarks.end()) return other->stripped;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME;
}

// Compatibility characters that the reference's tables are too old for.
bool is_late_compatibility(char32_t c) {
  static constexpr std::pair<char32_t, char32_t> kLate[] = {
      {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xAB69, 0xAB69},   {0x10781, 0x10785}, {0x10787, 0x107B0},
      {0x107B2, 0x107BA}, {0x1E030, 0x1E06D}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}};
  return std::ranges::any_of(kLate, [c](const auto& range) { return c >= range.first && c <= range.second; });
}

// Capitals of later Unicode versions than the library's, which the reference knows.
char32_t lower_of(char32_t c) {
  static constexpr std::pair<char32_t, char32_t> kLate[] = {
      {0x1C89, 0x1C8A}, {0xA7CB, 0x264},  {0xA7CC, 0xA7CD}, {0xA7CE, 0xA7CF},
      {0xA7D2, 0xA7D3}, {0xA7D4, 0xA7D5}, {0xA7DA, 0xA7DB}, {0xA7DC, 0x19B}};
  for (const auto& [capital, lower] : kLate) {
    if (c == capital) return lower;
  }
  if (c >= 0x10D50 && c <= 0x10D65) return c + 0x20;
  if (c >= 0x16EA0 && c <= 0x16EB8) return c + 0x1B;
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

using CodePoints = std::vector<utf8proc_int32_t>;

CodePoints decompose(std::string_view text, bool compatibility) {
  CodePoints out;
  out.reserve(text.size() + 32);
  for (std::size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    // The reference's tables are older than U+11938.
    if (c < (compatibility ? 0xA0 : 0xC0) || c == 0x11938 || (compatibility && is_late_compatibility(c))) {
      out.push_back(static_cast<utf8proc_int32_t>(c));
      continue;
    }
    utf8proc_int32_t parts[32];
    int boundary = 0;
    const auto options = static_cast<utf8proc_option_t>(compatibility ? UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT
                                                                      : UTF8PROC_DECOMPOSE);
    const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 32, options, &boundary);
    LODE_ASSERT(n >= 1 && n <= 32);
    out.insert(out.end(), parts, parts + n);
  }
  return out;
}

void order_marks(CodePoints& points) {
  std::vector<std::pair<int, utf8proc_int32_t>> run;
  for (std::size_t i = 0; i < points.size();) {
    run.clear();
    std::size_t j = i;
    for (int k; j < points.size() && (k = combining_class(static_cast<char32_t>(points[j]))) != 0; j++) {
      run.emplace_back(k, points[j]);
    }
    if (run.size() > 1) {
      std::ranges::stable_sort(run, {}, [](const auto& mark) { return mark.first; });
      for (std::size_t m = 0; m < run.size(); m++) points[i + m] = run[m].second;
    }
    i = std::max(j, i + 1);
  }
}

// Composes [begin, end) and appends it to `out`.
void compose(utf8proc_int32_t* begin, utf8proc_int32_t* end, std::string& out) {
  if (begin == end) return;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  const auto n = utf8proc_normalize_utf32(begin, end - begin, options);
  LODE_ASSERT(n >= 0);
  for (utf8proc_ssize_t i = 0; i < n; i++) append_code_point(static_cast<char32_t>(begin[i]), out);
}

// Late marks stand alone, and U+11935 U+11930 do not become U+11938.
bool stands_alone(utf8proc_int32_t c) {
  return c >= 0x300 && (c == 0x11930 || find_range(kLateMarks, static_cast<char32_t>(c)) != kLateMarks.end());
}

}  // namespace

std::size_t valid_utf8_prefix(std::string_view bytes) {
  const auto* p = reinterpret_cast<const std::uint8_t*>(bytes.data());
  const std::size_t n = bytes.size();
  std::size_t i = 0;
  while (i < n) {
    if (p[i] < 0x80) {
      std::uint64_t word;
      while (i + 8 <= n && (std::memcpy(&word, p + i, 8), (word & 0x8080808080808080u) == 0)) i += 8;
      while (i < n && p[i] < 0x80) i++;
      continue;
    }
    const Lead lead = classify(p[i]);
    if (lead.trailing == 0 || i + lead.trailing >= n || p[i + 1] < lead.low || p[i + 1] > lead.high) return i;
    for (int k = 2; k <= lead.trailing; k++) {
      if ((p[i + k] & 0xC0) != 0x80) return i;
    }
    i += lead.trailing + 1;
  }
  return n;
}

std::size_t invalid_utf8_length(std::string_view bytes, bool& incomplete) {
  const auto* p = reinterpret_cast<const std::uint8_t*>(bytes.data());
  incomplete = false;
  const Lead lead = classify(p[0]);
  if (lead.trailing == 0) return 1;
  std::size_t i = 1;
  while (i <= static_cast<std::size_t>(lead.trailing) && i < bytes.size()) {
    const bool fits = i == 1 ? p[i] >= lead.low && p[i] <= lead.high : (p[i] & 0xC0) == 0x80;
    if (!fits) return i;
    i++;
  }
  incomplete = i == bytes.size();
  return i;
}

std::string lossy_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const std::size_t good = valid_utf8_prefix(bytes);
    out.append(bytes.substr(0, good));
    bytes.remove_prefix(good);
    if (bytes.empty()) break;
    bool incomplete;
    bytes.remove_prefix(invalid_utf8_length(bytes, incomplete));
    out.append("\xEF\xBF\xBD");
  }
  return out;
}

char32_t next_code_point(std::string_view text, std::size_t& at) {
  const auto* p = reinterpret_cast<const std::uint8_t*>(text.data()) + at;
  const char32_t lead = p[0];
  if (lead < 0x80) return at += 1, lead;
  if (lead < 0xE0) return at += 2, (lead & 0x1F) << 6 | (p[1] & 0x3F);
  if (lead < 0xF0) return at += 3, (lead & 0x0F) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3F);
  return at += 4, (lead & 0x07) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3F);
}

void append_code_point(char32_t c, std::string& out) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  }
}

char32_t byte_to_character(std::uint8_t byte) {
  return alphabet().characters[byte];
}

int character_to_byte(char32_t character) {
  return character < alphabet().bytes.size() ? alphabet().bytes[character] : -1;
}

std::string bytes_to_alphabet(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) append_code_point(byte_to_character(static_cast<std::uint8_t>(c)), out);
  return out;
}

bool in_alphabet(std::string_view spelling) {
  for (std::size_t i = 0; i < spelling.size();) {
    if (character_to_byte(next_code_point(spelling, i)) < 0) return false;
  }
  return true;
}

std::string alphabet_to_bytes(std::string_view spelling) {
  std::string out;
  for (std::size_t i = 0; i < spelling.size();) {
    const int byte = character_to_byte(next_code_point(spelling, i));
    if (byte < 0) return std::string(spelling);
    out.push_back(static_cast<char>(byte));
  }
  return out;
}

std::string normalize(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  CodePoints points = decompose(text, form == NormalForm::nfkc || form == NormalForm::nfkd);
  order_marks(points);
  std::string out;
  out.reserve(text.size());
  if (form == NormalForm::nfd || form == NormalForm::nfkd) {
    for (const auto c : points) append_code_point(static_cast<char32_t>(c), out);
    return out;
  }
  utf8proc_int32_t* const end = points.data() + points.size();
  utf8proc_int32_t* begin = points.data();
  for (utf8proc_int32_t* p = begin; p != end; p++) {
    if (!stands_alone(*p)) continue;
    compose(begin, p, out);
    append_code_point(static_cast<char32_t>(*p), out);
    begin = p + 1;
  }
  compose(begin, end, out);
  return out;
}

std::string nfc(std::string_view text) {
  return normalize(text, NormalForm::nfc);
}

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    if (c < 0x80) {
      out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
    } else if (c == 0x130) {
      out.append("i\u0307");
    } else {
      append_code_point(lower_of(c), out);
    }
  }
  return out;
}

std::string without_marks(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t start = i;
    if (!is_stripped_mark(next_code_point(text, i))) out.append(text.substr(start, i - start));
  }
  return out;
}

bool is_white_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

std::size_t previous_character(std::string_view text, std::size_t end) {
  do {
    end--;
  } while ((text[end] & 0xC0) == 0x80);
  return end;
}

std::string_view strip_white_space(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    std::size_t next = 0;
    if (!is_white_space(next_code_point(text, next))) break;
    text.remove_prefix(next);
  }
  while (right && !text.empty()) {
    const std::size_t last = previous_character(text, text.size());
    std::size_t at = last;
    if (!is_white_space(next_code_point(text, at))) break;
    text = text.substr(0, last);
  }
  return text;
}

std::string with_stand_ins(std::string_view text) {
  std::string out;
  const char32_t first_gap = kUnicodeGaps.front().first;
  for (std::size_t i = 0; i < text.size();) {
    if (static_cast<std::uint8_t>(text[i]) < 0xE0) {  // every gap takes three bytes or more
      i++;
      continue;
    }
    const std::size_t start = i;
    const char32_t c = next_code_point(text, i);
    if (c < first_gap || (c >= 0x3400 && c < 0xA000)) continue;
    const auto gap = find_range(kUnicodeGaps, c);
    if (gap == kUnicodeGaps.end()) continue;
    if (out.empty()) out = text;
    std::string stand_in;
    append_code_point(gap->stand_in, stand_in);
    LODE_ASSERT(stand_in.size() == i - start);
    out.replace(start, stand_in.size(), stand_in);
  }
  return out;
}

}  // namespace lode::text
