#include "io/hash.h"

#include <gtest/gtest.h>

#include <string>

namespace lode {
namespace {

std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Published values of XXH3_64bits with seed 0.
TEST(Hash, KnownValues) {
  EXPECT_EQ(hash_bytes({}), 0x2d06800538d394c2u);
  EXPECT_EQ(hash_text(0x12), "0000000000000012");
}

TEST(Hash, PiecesEqualTheWhole) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += static_cast<char>(i * 7);
  Hasher hasher;
  for (std::size_t cut = 0; cut <= text.size(); cut += 617) {
    hasher.reset();
    hasher.add(bytes(std::string_view(text).substr(0, cut)));
    hasher.add(bytes(std::string_view(text).substr(cut)));
    EXPECT_EQ(hasher.value(), hash_bytes(bytes(text)));
  }
}

}  // namespace
}  // namespace lode
