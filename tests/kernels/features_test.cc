#include "kernels/cpu/features.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lode/error.h"

namespace lode::test {
namespace {

TEST(Features, ForcedTargetRuns) {
  const std::vector<std::string> targets = available_simd_targets();
  ASSERT_FALSE(targets.empty());
  for (const std::string& target : targets) {
    force_simd_target(target);
    EXPECT_EQ(cpu_path().target, target);
    EXPECT_EQ(cpu_path().forced, target != targets.front());
  }
  force_simd_target("");
  EXPECT_EQ(cpu_path().target, targets.front());
}

TEST(Features, MissingIsSaidUnlessBest) {
  EXPECT_EQ(cpu_path().missing.empty(), available_simd_targets().front() == "AVX3");
}

TEST(Features, UnknownTargetIsRefused) {
  try {
    force_simd_target("AVX9");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("AVX9"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find(available_simd_targets().front()), std::string::npos);
  }
}

}  // namespace
}  // namespace lode::test
