// Made by tools/tokenizer_fixtures/unicode_gaps.py: where the installed Unicode 14 libraries and the
// reference disagree.
#pragma once

#include <array>

namespace lode::text {

// Characters of Unicode 15 to 16, which the reference's regular expressions know and PCRE2 does not.
struct UnicodeGap {
  char32_t first, last;
  char32_t stand_in;  // known to PCRE2, of the same general category and UTF-8 length
};
inline constexpr int kNumUnicodeGaps = 126;
extern const std::array<UnicodeGap, kNumUnicodeGaps> kUnicodeGaps;  // ascending

// Marks with a combining class that the reference's older NFC takes for starters.
struct LateMarks {
  char32_t first, last;
};
inline constexpr int kNumLateMarks = 32;
extern const std::array<LateMarks, kNumLateMarks> kLateMarks;  // ascending

// Characters that only one of the two takes for marks (general categories Mn, Mc, Me): the reference strips
// accents by the table of an older version.
struct OtherMarks {
  char32_t first, last;
  bool stripped;  // by the reference
};
inline constexpr int kNumOtherMarks = 77;
extern const std::array<OtherMarks, kNumOtherMarks> kOtherMarks;  // ascending

}  // namespace lode::text
