"""Writes src/text/unicode_gaps.cc: characters that the tokenizers package knows and Debian 12's PCRE2 (Unicode 14) does
not, each range with a stand-in of the same general category and UTF-8 length.

Needs Python 3.11 (whose unicodedata is Unicode 14) and requirements.txt. Run from the repository's root.
"""
import unicodedata

from tokenizers import Regex, normalizers

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
    ranges = []
    for c in sorted(kind):
        if ranges and ranges[-1][1] == c - 1 and ranges[-1][2] == kind[c]:
            ranges[-1][1] = c
        else:
            ranges.append([c, c, kind[c]])
    with open("src/text/unicode_gaps.cc", "w") as out:
        out.write('// Made by tools/tokenizer_fixtures/unicode_gaps.py: characters of Unicode 15 to 16.\n')
        out.write('#include "text/unicode_gaps.h"\n\nnamespace lode::text {\n\n// clang-format off\n')
        out.write("const std::array<UnicodeGap, kNumUnicodeGaps> kUnicodeGaps = {{\n")
        for i in range(0, len(ranges), 4):
            row = ["{0x%x, 0x%x, 0x%x}" % (a, b, stand_ins[k]) for a, b, k in ranges[i:i + 4]]
            out.write("    " + ", ".join(row) + ",\n")
        out.write("}};\n// clang-format on\n\n}  // namespace lode::text\n")
    with open("src/text/unicode_gaps.h", "w") as out:
        out.write('// Characters that the reference knows and the installed PCRE2 (Unicode 14) does not.\n#pragma once\n\n')
        out.write('#include <array>\n#include <cstdint>\n\nnamespace lode::text {\n\n')
        out.write('struct UnicodeGap {\n  char32_t first, last;\n')
        out.write('  char32_t stand_in;  // known to PCRE2, of the same general category and UTF-8 length\n};\n\n')
        out.write(f'inline constexpr int kNumUnicodeGaps = {len(ranges)};\n')
        out.write('extern const std::array<UnicodeGap, kNumUnicodeGaps> kUnicodeGaps;  // ascending\n\n')
        out.write('}  // namespace lode::text\n')


main()
