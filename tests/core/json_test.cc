#include "core/json.h"

#include <gtest/gtest.h>

#include <cmath>

#include "temp_folder.h"

namespace lode {
namespace {

Json parse(std::string_view text, JsonLimits limits = {}) {
  return parse_json(text, "t.json", limits);
}

TEST(Json, RoundTripKeepsOrderAndTypes) {
  const std::string text =
      R"({"z": 1, "a": [true, null, -2, 2.5, "q\"\\\n\u0001é😀"], "m": {}, "e": [], "one": 1.0})";
  const Json value = parse(text);
  EXPECT_EQ(value.dump(), text);
  EXPECT_EQ(parse(value.dump(2)), value);
  EXPECT_TRUE(value.at("z").is_int());
  EXPECT_FALSE(value.at("one").is_int());
  EXPECT_EQ(value.at("one").as_double(), 1.0);
  EXPECT_EQ(parse("[1,\n {\"a\":2}]").dump(2), "[\n  1,\n  {\n    \"a\": 2\n  }\n]");
}

TEST(Json, Numbers) {
  EXPECT_EQ(parse("9223372036854775807").as_int(), INT64_MAX);
  EXPECT_EQ(parse("-9223372036854775808").as_int(), INT64_MIN);
  EXPECT_FALSE(parse("9223372036854775808").is_int());
  EXPECT_FALSE(parse("1e3").is_int());
  for (const double x : {0.1, 1e300, -0.0, 5e-324, 1.0 / 3, 123456789012345680.0}) {
    const Json back = parse(Json(x).dump());
    EXPECT_FALSE(back.is_int()) << x;
    EXPECT_EQ(back.as_double(), x);
    EXPECT_EQ(std::signbit(back.as_double()), std::signbit(x));
  }
  EXPECT_EQ(Json(std::nan("")).dump(), "null");
  EXPECT_EQ(Json(std::uint64_t{1} << 40).as_int(), std::int64_t{1} << 40);
}

TEST(Json, HostileInputIsRefused) {
  for (const std::string_view text :
       {"",      " ",           "{",        "[1,]",     "{\"a\":1,}",       "{\"a\":1,\"a\":2}", "nul", "01",
        "1 2",   "\"\\ud800\"", "\"\xff\"", "\"a\nb\"", "\"\xed\xa0\x80\"", "{'a':1}",           "NaN", "-",
        "1e999", "{\"a\" 1}",   "\"abc",    "[1}"}) {
    EXPECT_NE(error_of([&] { parse(text); }).find("t.json"), std::string::npos) << text;
  }
  EXPECT_NE(error_of([] { parse(std::string_view("\"a\0b\"", 5)); }), "");
  EXPECT_EQ(parse(R"({"a":1,"a":2})", {.unique_keys = false}).size(), 2u);
}

TEST(Json, DepthIsLimited) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_NO_THROW(parse(nested(64)));
  EXPECT_NE(error_of([&] { parse(nested(65)); }).find("64 levels"), std::string::npos);
  EXPECT_NE(error_of([&] { parse(nested(1000000)); }), "");
  EXPECT_NE(error_of([&] { parse(std::string(1000000, '[')); }), "");
  EXPECT_NO_THROW(parse("[[1]]", {.max_depth = 2}));
  EXPECT_NE(error_of([&] { parse("[[[1]]]", {.max_depth = 2}); }), "");
}

TEST(Json, ValuesAreLimitedAndMessagesShort) {
  EXPECT_NO_THROW(parse("[1, {\"a\": 2}]", {.max_values = 4}));
  EXPECT_NE(error_of([] { parse("[1, {\"a\": 2}]", {.max_values = 3}); }).find("3 values"),
            std::string::npos);
  EXPECT_LT(error_of([] { parse("[\"" + std::string(100000, 'x')); }).size(), 400u);
  EXPECT_LT(error_of([] {
              parse("{\"" + std::string(100000, 'x') + "\":1,\"" + std::string(100000, 'x') + "\":1}");
            }).size(),
            400u);
}

TEST(Json, AccessErrorsNameWhatWasExpected) {
  const Json value = parse(R"({"a": 1.5})");
  EXPECT_NE(error_of([&] { value.at("b"); }).find("\"b\""), std::string::npos);
  EXPECT_NE(error_of([&] { value.at("a").as_int(); }).find("expected integer, found number"),
            std::string::npos);
  EXPECT_NE(error_of([&] { value.at("a").at("x"); }).find("expected object"), std::string::npos);
  EXPECT_EQ(value.find("b"), nullptr);
  EXPECT_EQ(value.at("a").find("x"), nullptr);
  Json built;
  built["list"].push_back(1);
  built["list"].push_back("x");
  EXPECT_EQ(built.dump(), R"({"list": [1, "x"]})");
}

}  // namespace
}  // namespace lode
