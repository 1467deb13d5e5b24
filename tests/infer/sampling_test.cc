#include "infer/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "temp_folder.h"

namespace lode {
namespace {

const std::vector<float> kLogits = {0.5f, 2.0f, -1.0f, 1.0f, 2.0f, -3.0f};

std::map<std::int32_t, int> draw(const SamplingOptions& options, int count,
                                 const std::vector<float>& logits = kLogits,
                                 const std::vector<std::int32_t>& seen = {}) {
  Sampler sampler(options);
  std::map<std::int32_t, int> counts;
  for (int i = 0; i < count; ++i) ++counts[sampler.next(logits, seen)];
  return counts;
}

std::set<std::int32_t> tokens_of(const SamplingOptions& options) {
  std::set<std::int32_t> tokens;
  for (const auto& [token, count] : draw(options, 4000)) tokens.insert(token);
  return tokens;
}

TEST(Sampler, GreedyTakesTheFirstOfTheLargest) {
  EXPECT_EQ(draw({.temperature = 0}, 20), (std::map<std::int32_t, int>{{1, 20}}));
  EXPECT_EQ(draw({.temperature = 0, .top_k = 3, .top_p = 0.1, .seed = 9}, 1),
            (std::map<std::int32_t, int>{{1, 1}}));
  EXPECT_EQ(draw({.temperature = 0}, 1, {-5.0f}), (std::map<std::int32_t, int>{{0, 1}}));
}

TEST(Sampler, TopKKeepsExactlyTheLikeliest) {
  using Tokens = std::set<std::int32_t>;
  EXPECT_EQ(tokens_of({.temperature = 3, .top_k = 1}), (Tokens{1}));
  EXPECT_EQ(tokens_of({.temperature = 3, .top_k = 2}), (Tokens{1, 4}));
  EXPECT_EQ(tokens_of({.temperature = 3, .top_k = 3}), (Tokens{1, 3, 4}));
  EXPECT_EQ(tokens_of({.temperature = 3, .top_k = 5}), (Tokens{0, 1, 2, 3, 4}));
  EXPECT_EQ(tokens_of({.temperature = 3, .top_k = 100}), (Tokens{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(tokens_of({.temperature = 3}), (Tokens{0, 1, 2, 3, 4, 5}));
}

// Probabilities at temperature 1: .3837 (1) .3837 (4) .1412 (3) .0856 (0) .0019... the smallest sets that
// reach top_p.
TEST(Sampler, TopPKeepsTheSmallestSet) {
  using Tokens = std::set<std::int32_t>;
  double total = 0;
  for (const float logit : kLogits) total += std::exp(static_cast<double>(logit));
  const double one = std::exp(2.0) / total, third = std::exp(1.0) / total, fourth = std::exp(0.5) / total;
  EXPECT_EQ(tokens_of({.top_p = 0.01}), (Tokens{1}));
  EXPECT_EQ(tokens_of({.top_p = one - 1e-6}), (Tokens{1}));
  EXPECT_EQ(tokens_of({.top_p = one + 1e-6}), (Tokens{1, 4}));
  EXPECT_EQ(tokens_of({.top_p = 2 * one + 1e-6}), (Tokens{1, 3, 4}));
  EXPECT_EQ(tokens_of({.top_p = 2 * one + third + 1e-6}), (Tokens{0, 1, 3, 4}));
  EXPECT_EQ(tokens_of({.top_p = 2 * one + third + fourth + 1e-6}), (Tokens{0, 1, 2, 3, 4}));
  // Of what top-k has left.
  EXPECT_EQ(tokens_of({.top_k = 3, .top_p = 0.84}), (Tokens{1, 4}));
  EXPECT_EQ(tokens_of({.top_k = 3, .top_p = 0.85}), (Tokens{1, 3, 4}));
}

void check_distribution(const SamplingOptions& options) {
  constexpr int kDraws = 60000;
  const auto counts = draw(options, kDraws);
  double total = 0, chi = 0;
  for (const float logit : kLogits) total += std::exp(static_cast<double>(logit) / options.temperature);
  for (std::size_t i = 0; i < kLogits.size(); ++i) {
    const double expected = kDraws * std::exp(static_cast<double>(kLogits[i]) / options.temperature) / total;
    const auto found = counts.find(static_cast<std::int32_t>(i));
    const double got = found == counts.end() ? 0 : found->second;
    chi += (got - expected) * (got - expected) / expected;
  }
  EXPECT_LT(chi, 20.5) << "5 degrees of freedom: one seed in a thousand";
}
TEST(Sampler, DrawsFromTheSoftmax) {
  check_distribution({.temperature = 1, .seed = 4});
  check_distribution({.temperature = 2.5, .seed = 5});
  check_distribution({.temperature = 1, .top_p = 0.9999999, .seed = 6});
}

TEST(Sampler, SeedsReproduce) {
  const auto sequence = [](std::uint64_t seed) {
    Sampler sampler({.seed = seed});
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < 50; ++i) tokens.push_back(sampler.next(kLogits, {}));
    return tokens;
  };
  EXPECT_EQ(sequence(1), sequence(1));
  EXPECT_NE(sequence(1), sequence(2));
}

TEST(Sampler, RepetitionPenaltyCountsATokenOnce) {
  // 2 / 1.8 = 1.11 beats 1; a second division would not.
  const SamplingOptions options{.temperature = 0, .repetition_penalty = 1.8};
  EXPECT_EQ(draw(options, 1, {2.0f, 1.0f}, {0, 0, 0}).begin()->first, 0);
  EXPECT_EQ(draw(options, 1, {2.0f, 1.2f}, {0}).begin()->first, 1);
  EXPECT_EQ(draw(options, 1, {-1.0f, -1.5f}, {0}).begin()->first, 1) << "negative logits are multiplied";
  EXPECT_EQ(draw(options, 1, {-1.0f, -2.0f}, {0, 0}).begin()->first, 0);
  EXPECT_EQ(draw({.temperature = 0, .repetition_penalty = 0.5}, 1, {2.0f, 1.5f}, {1}).begin()->first, 1);
}

TEST(Sampler, ImpossibleTokensAreNeverDrawn) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  for (const double top_p : {1.0, 0.999}) {
    const auto counts = draw({.top_p = top_p}, 2000, {kNever, 1.0f, kNever, 1.0f, kNever});
    EXPECT_EQ(counts.size(), 2u);
    EXPECT_TRUE(counts.contains(1) && counts.contains(3));
  }
}

TEST(Sampler, DamagedLogitsAreRefused) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    for (const double temperature : {0.0, 1.0}) {
      EXPECT_NE(error_of([&] {
                  draw({.temperature = temperature, .top_k = 2}, 1, {1.0f, bad, 2.0f});
                }).find("not finite"),
                std::string::npos);
    }
  }
}

TEST(Sampler, OptionsOutOfRangeAreNamed) {
  const auto expect = [](const SamplingOptions& options, const std::string& key) {
    EXPECT_EQ(kind_of([&] { Sampler sampler(options); }), ErrorKind::usage);
    EXPECT_NE(error_of([&] { check_sampling(options); }).find(key), std::string::npos);
  };
  expect({.temperature = -1}, "temperature");
  expect({.temperature = std::nan("")}, "temperature");
  expect({.temperature = INFINITY}, "temperature");
  expect({.top_k = -1}, "top_k");
  expect({.top_p = 0}, "top_p");
  expect({.top_p = 1.5}, "top_p");
  expect({.top_p = std::nan("")}, "top_p");
  expect({.repetition_penalty = 0}, "repetition_penalty");
  expect({.repetition_penalty = INFINITY}, "repetition_penalty");
}

// A temperature close to 0 is close to greedy, without overflow.
TEST(Sampler, TinyTemperature) {
  EXPECT_EQ(draw({.temperature = 1e-30}, 50, {1.0f, 3.0f, 2.0f}), (std::map<std::int32_t, int>{{1, 50}}));
}

}  // namespace
}  // namespace lode
