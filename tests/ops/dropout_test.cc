#include "ops/dropout.h"

#include "ops/op_test.h"

namespace lode::test {
namespace {

// The mask as the kernel's header states it.
bool kept(const Context& context, std::string_view site, const Batch& batch, std::int64_t t, std::int64_t c,
          float p) {
  const PhiloxKey key = make_key(context.seed, format("dropout/{}/{}", context.step, site));
  const auto at = static_cast<std::size_t>(t);
  const Segments& segments = batch.segments();
  const auto sample =
      static_cast<std::uint64_t>(segments.list()[static_cast<std::size_t>(segments.segment_of()[at])].sample);
  const auto words =
      philox({static_cast<std::uint32_t>(c / 4), static_cast<std::uint32_t>(segments.positions()[at]),
              static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32)},
             key);
  return words[static_cast<std::size_t>(c % 4)] >= static_cast<double>(p) * 0x1p32;
}

constexpr float kP = 0.3f;

TEST(Dropout, ForwardAndGradient) {
  std::vector<std::unique_ptr<Batch>> batches;
  check_op_at_odd_sizes([&](DType dtype, auto tokens, auto channels, Rng& rng) {
    batches.push_back(std::make_unique<Batch>(odd_batch(tokens, 5, rng)));
    const Batch& batch = *batches.back();
    OpContext same;
    same.context.seed = 77;
    same.context.step = 5;
    Doubles factor(tokens, channels);
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t c = 0; c < channels; ++c) {
        factor.at(t, c) = kept(same.context, "here", batch, t, c, kP) ? 1 / (1 - static_cast<double>(kP)) : 0;
      }
    }
    OpCase op;
    op.inputs = {Doubles(tokens, channels).fill_normal(rng, dtype)};
    op.reference = [factor](const auto& x, const auto&) {
      Doubles y = x[0];
      for (std::size_t i = 0; i < y.values.size(); ++i) y.values[i] *= factor.values[i];
      return std::vector<Doubles>{y};
    };
    op.run = [&batch](Context& context, std::vector<Value> x, const std::vector<Weight*>&) {
      context.seed = 77;
      context.step = 5;
      context.training = true;
      return std::vector<Value>{dropout(context, x[0], batch, kP, "here")};
    };
    return op;
  });
}

TEST(Dropout, IsNothingWhenNotTrainingOrAtZero) {
  OpContext env;
  Rng rng(1, "dropout");
  const Batch batch = odd_batch(7, 5, rng);
  const Value x = make_value(env.context, env.tensor(Doubles(7, 3)), true);
  EXPECT_EQ(dropout(env.context, x, batch, 0.5f, "a").data.storage(), x.data.storage());
  env.context.training = true;
  EXPECT_EQ(dropout(env.context, x, batch, 0.0f, "a").gradient, x.gradient);
  EXPECT_NE(dropout(env.context, x, batch, 0.5f, "a").data.storage(), x.data.storage());
  EXPECT_THROW(dropout(env.context, x, batch, 1.0f, "a"), Error);
}

TEST(Dropout, SeedStepAndSiteChangeTheMask) {
  OpContext env;
  env.context.training = true;
  Rng rng(1, "dropout");
  const Batch batch = odd_batch(7, 5, rng);
  Doubles ones(7, 65);
  std::ranges::fill(ones.values, 1.0);
  const auto mask = [&](std::uint64_t seed, std::int64_t step, std::string_view site) {
    env.context.seed = seed;
    env.context.step = step;
    return doubles_of(dropout(env.context, {env.tensor(ones)}, batch, 0.5f, site).data.view()).values;
  };
  const auto base = mask(1, 1, "a");
  EXPECT_EQ(mask(1, 1, "a"), base);
  EXPECT_NE(mask(2, 1, "a"), base);
  EXPECT_NE(mask(1, 2, "a"), base);
  EXPECT_NE(mask(1, 1, "b"), base);
}

}  // namespace
}  // namespace lode::test
