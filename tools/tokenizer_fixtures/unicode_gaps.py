"""Writes src/text/unicode_gaps.{h,cc}: where Debian 12's PCRE2 and utf8proc (Unicode 14) and the tokenizers package
disagree. Characters that its regular expressions know and PCRE2 does not, with a stand-in of the same general category
and UTF-8 length; combining marks that its older NFC takes for starters; and what StripAccents takes for marks.

Needs Python 3.11 (whose unicodedata is Unicode 14), libutf8proc2 and requirements.txt. Run from the repository's root.
"""
import ctypes
import unicodedata

from tokenizers import Regex, normalizers

HEADER = """\
// Made by tools/tokenizer_fixtures/unicode_gaps.py: where the installed Unicode 14 libraries and the reference disagree.
#pragma once

#include <array>

namespace lode::text {

// Characters of Unicode 15 to 16, which the reference's regular expressions know and PCRE2 does not.
struct UnicodeGap {
  char32_t first, last;
  char32_t stand_in;  // known to PCRE2, of the same general category and UTF-8 length
};
inline constexpr int kNumUnicodeGaps = %d;
extern const std::array<UnicodeGap, kNumUnicodeGaps> kUnicodeGaps;  // ascending

// Marks with a combining class that the reference's older NFC takes for starters.
struct LateMarks {
  char32_t first, last;
};
inline constexpr int kNumLateMarks = %d;
extern const std::array<LateMarks, kNumLateMarks> kLateMarks;  // ascending

// Characters that only one of the two takes for marks (general categories Mn, Mc, Me): the reference strips
// accents by the table of an older version.
struct OtherMarks {
  char32_t first, last;
  bool stripped;  // by the reference
};
inline constexpr int kNumOtherMarks = %d;
extern const std::array<OtherMarks, kNumOtherMarks> kOtherMarks;  // ascending

}  // namespace lode::text
"""
CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Cf").split()
CODE_POINTS = [c for c in range(0x80, 0x110000) if not 0xD800 <= c <= 0xDFFF]


def members(pattern, candidates):
    """The candidates that the package's regular expressions match."""
    replace = normalizers.Replace(Regex(pattern), "")
    found = set()
    for i in range(0, len(candidates), 4096):
        part = candidates[i:i + 4096]
        kept = replace.normalize_str("".join(map(chr, part)))
        found |= set(part) - set(map(ord, kept))
    return found


def to_ranges(keyed):
    ranges = []
    for c, key in sorted(keyed.items()):
        if ranges and ranges[-1][1] == c - 1 and ranges[-1][2] == key:
            ranges[-1][1] = c
        else:
            ranges.append([c, c, key])
    return ranges


def late_marks():
    """Marks with a combining class that the package's NFC does not reorder around U+0334 (class 1)."""
    nfc = normalizers.NFC()
    return {c: 0 for c in CODE_POINTS
            if nfc.normalize_str(chr(c) + "\u0334") != unicodedata.normalize("NFC", chr(c) + "\u0334")}


def other_marks():
    strip = normalizers.StripAccents()
    category = ctypes.CDLL("libutf8proc.so.2").utf8proc_category_string
    category.restype = ctypes.c_char_p
    marks = {}
    for c in CODE_POINTS:
        stripped = strip.normalize_str(chr(c)) == ""
        if stripped != category(c).startswith(b"M"):
            marks[c] = stripped
    return marks


def table(out, declaration, cells, per_row):
    out.write(declaration + " = {{\n")
    for i in range(0, len(cells), per_row):
        out.write("    " + ", ".join("{%s}" % cell for cell in cells[i:i + per_row]) + ",\n")
    out.write("}};\n")


def main():
    assert unicodedata.unidata_version.startswith("14."), unicodedata.unidata_version
    unassigned = [c for c in CODE_POINTS if unicodedata.category(chr(c)) == "Cn"]
    han = members(r"\p{Han}", unassigned)
    kind = {}
    for category in CATEGORIES:
        for c in members(r"\p{%s}" % category, unassigned):
            kind[c] = (category, len(chr(c).encode()), c in han)
    stand_ins = {}
    for c in CODE_POINTS:
        category, length = unicodedata.category(chr(c)), len(chr(c).encode())
        stand_ins.setdefault((category, length, False), c)
    stand_ins[("Lo", 4, True)] = 0x20000
    stand_ins[("So", 3, True)] = 0x2E80
    gaps = ["0x%x, 0x%x, 0x%x" % (a, b, stand_ins[k]) for a, b, k in to_ranges(kind)]
    marks = ["0x%x, 0x%x" % (a, b) for a, b, _ in to_ranges(late_marks())]
    others = ["0x%x, 0x%x, %s" % (a, b, str(k).lower()) for a, b, k in to_ranges(other_marks())]
    with open("src/text/unicode_gaps.cc", "w") as out:
        out.write("// Made by tools/tokenizer_fixtures/unicode_gaps.py.\n")
        out.write('#include "text/unicode_gaps.h"\n\nnamespace lode::text {\n\n// clang-format off\n')
        table(out, "const std::array<UnicodeGap, kNumUnicodeGaps> kUnicodeGaps", gaps, 3)
        out.write("\n")
        table(out, "const std::array<LateMarks, kNumLateMarks> kLateMarks", marks, 5)
        out.write("\n")
        table(out, "const std::array<OtherMarks, kNumOtherMarks> kOtherMarks", others, 4)
        out.write("// clang-format on\n\n}  // namespace lode::text\n")
    with open("src/text/unicode_gaps.h", "w") as out:
        out.write(HEADER % (len(gaps), len(marks), len(others)))


main()
