#include "core/facts.h"

#include <gtest/gtest.h>

#include "lode/error.h"
#include "temp_folder.h"

namespace lode {
namespace {

TEST(Facts, SameNameReplacesAndStrictNamesSubstitutions) {
  Facts facts;
  facts.set({"matmul", "bf16", "bf16", "", false});
  facts.refuse_substitutions();
  facts.set({"attention", "fused", "plain", "head size 7", true});
  facts.set({"matmul", "bf16", "f32", "no bf16 dot products", true});
  ASSERT_EQ(facts.all().size(), 2u);
  const std::string message = error_of([&] { facts.refuse_substitutions(); });
  EXPECT_NE(message.find("matmul: asked bf16, chosen f32 (no bf16 dot products)"), std::string::npos)
      << message;
  EXPECT_NE(message.find("attention"), std::string::npos) << message;
  EXPECT_EQ(kind_of([&] { facts.refuse_substitutions(); }), ErrorKind::usage);
}

TEST(Facts, Counters) {
  Facts facts;
  facts.count("hits");
  facts.count("hits", 4);
  facts.count("misses", 0);
  EXPECT_EQ(facts.counters().at("hits"), 5);
  EXPECT_EQ(facts.counters().at("misses"), 0);
}

}  // namespace
}  // namespace lode
