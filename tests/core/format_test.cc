#include "core/format.h"

#include <gtest/gtest.h>

#include "temp_folder.h"

namespace lode {
namespace {

TEST(Format, Arguments) {
  const std::string text = "text";
  EXPECT_EQ(format("{} {} {} {} {}", 1, -2L, true, text, "literal"), "1 -2 true text literal");
  EXPECT_EQ(format("{:.3f}|{:>5}|{:<5}|{:04x}", 1.5f, 7, "ab", 255u), "1.500|    7|ab   |00ff");
  EXPECT_EQ(format("{1}{0}", "a", "b"), "ba");
  EXPECT_EQ(format("{{}}"), "{}");
  EXPECT_EQ(format("{}", std::uint64_t{18446744073709551615u}), "18446744073709551615");
}

TEST(Format, WrongPatternIsAnError) {
  EXPECT_EQ(kind_of([] { format("{} {}", 1); }), ErrorKind::internal);
  EXPECT_EQ(kind_of([] { format("{:d}", "text"); }), ErrorKind::internal);
  EXPECT_EQ(kind_of([] { format("{"); }), ErrorKind::internal);
}

TEST(Format, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(std::uint64_t{10} << 30), "10.0 GiB");
  EXPECT_EQ(format_bytes(UINT64_MAX), "16777216.0 TiB");
}

}  // namespace
}  // namespace lode
