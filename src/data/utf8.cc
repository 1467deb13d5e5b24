#include "data/utf8.h"

#include <cstdint>
#include <cstring>

namespace lode {
namespace {

bool in_range(unsigned char byte, unsigned low, unsigned high) {
  return byte >= low && byte <= high;
}

// Length of the well-formed sequence at p, 0 when there is none (Unicode standard, table 3-7).
std::size_t sequence_length(const unsigned char* p, std::size_t left) {
  const unsigned char first = p[0];
  if (first < 0x80) return 1;
  std::size_t length = 0;
  unsigned low = 0x80, high = 0xbf;  // bounds of the second byte
  if (in_range(first, 0xc2, 0xdf)) {
    length = 2;
  } else if (in_range(first, 0xe0, 0xef)) {
    length = 3;
    if (first == 0xe0) low = 0xa0;
    if (first == 0xed) high = 0x9f;
  } else if (in_range(first, 0xf0, 0xf4)) {
    length = 4;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
  }
  if (length == 0 || length > left || !in_range(p[1], low, high)) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if (!in_range(p[i], 0x80, 0xbf)) return 0;
  }
  return length;
}

}  // namespace

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  std::size_t i = 0;
  while (i < text.size()) {
    std::uint64_t word;
    if (text.size() - i >= sizeof(word)) {
      std::memcpy(&word, bytes + i, sizeof(word));
      if ((word & 0x8080808080808080u) == 0) {
        i += sizeof(word);
        continue;
      }
    }
    const std::size_t length = sequence_length(bytes + i, text.size() - i);
    if (length == 0) return i;
    i += length;
  }
  return std::nullopt;
}

}  // namespace lode
