#include "nn/parameter.h"

#include <gtest/gtest.h>

#include <cmath>

#include "nn/tiny_decoder.h"

namespace lode::test {
namespace {

struct ParameterTest : testing::Test {
  Memory memory;
  Facts facts;
  Workspace workspace{memory};
  Context context{.memory = memory, .facts = facts, .kernel = {1, &workspace}};
};

Parameter normal(const std::string& name, std::int64_t rows, std::int64_t cols, double deviation) {
  return {.name = name, .rows = rows, .cols = cols, .init = {InitKind::normal, deviation}};
}

std::vector<float> values_of(const Parameter& p) {
  std::vector<float> out;
  for (std::int64_t r = 0; r < p.rows; ++r)
    out.insert(out.end(), p.values().row<float>(r), p.values().row<float>(r) + p.cols);
  return out;
}

TEST_F(ParameterTest, PartsShareOneStorage) {
  ParameterList list(memory, true);
  Weight* weight = list.add({normal("q", 4, 3, 1), normal("k", 2, 3, 1)});
  Weight* bias = list.add(
      {{.name = "q.bias", .cols = 4, .vector = true}, {.name = "k.bias", .cols = 2, .vector = true}});
  list.allocate_gradients();
  EXPECT_EQ(weight->rows(), 6);
  EXPECT_EQ(weight->cols(), 3);
  EXPECT_EQ(bias->rows(), 1);
  EXPECT_EQ(bias->cols(), 6);
  EXPECT_EQ(list.numel(), 24);
  EXPECT_EQ(list.storages().size(), 2u);
  ASSERT_EQ(list.all().size(), 4u);
  const Parameter *k = list.find("k"), *k_bias = list.find("k.bias");
  EXPECT_EQ(list.find("v"), nullptr);
  const float* whole = weight->acquire(context, DType::f32).row<float>(0);
  EXPECT_EQ(k->values().row<float>(0), whole + 12);
  EXPECT_EQ(k_bias->values().row<float>(0), bias->acquire(context, DType::f32).row<float>(0) + 4);
  EXPECT_EQ(k->gradient().row<float>(0), weight->gradient()->tensor().view().row<float>(0) + 12);
  EXPECT_EQ(k->bf16_copy().data, nullptr);
  const bf16* copy = weight->acquire(context, DType::bf16).row<bf16>(4);
  EXPECT_EQ(k->bf16_copy().row<bf16>(0), copy);
  EXPECT_EQ(k->file_shape(), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(k_bias->file_shape(), (std::vector<std::int64_t>{2}));
  Parameter transposed = *k;
  transposed.layout = FileLayout::transposed;
  EXPECT_EQ(transposed.file_shape(), (std::vector<std::int64_t>{3, 2}));
}

TEST_F(ParameterTest, FrozenParametersHaveNoGradient) {
  ParameterList list(memory, false);
  Weight* weight = list.add({normal("w", 4, 3, 1)});
  list.allocate_gradients();
  EXPECT_EQ(weight->gradient(), nullptr);
  EXPECT_FALSE(list.find("w")->trainable());
  EXPECT_EQ(memory.use().current[static_cast<std::size_t>(MemoryTag::gradients)], 0u);
}

TEST_F(ParameterTest, PartsMustFit) {
  ParameterList list(memory, false);
  EXPECT_THROW(list.add({}), Error);
  EXPECT_THROW(list.add({normal("a", 4, 3, 1), normal("b", 4, 2, 1)}), Error);
  EXPECT_THROW(list.add({normal("a", 1, 3, 1), {.name = "b", .cols = 3, .vector = true}}), Error);
}

TEST_F(ParameterTest, CopyFollowsTheVersion) {
  ParameterList list(memory, false);
  Weight* weight = list.add({normal("w", 1, 1, 1)});
  const Parameter& p = list.all()[0];
  float& master = p.values().row<float>(0)[0];
  const auto copy = [&] { return to_f32(weight->acquire(context, DType::bf16).row<bf16>(0)[0]); };
  master = 1;
  EXPECT_EQ(copy(), 1);
  master = 2;
  EXPECT_EQ(copy(), 1) << "nobody has said that it changed";
  p.storage->changed(false);
  EXPECT_EQ(copy(), 2);
  p.bf16_copy().row<bf16>(0)[0] = to_bf16(8);
  p.storage->changed(true);
  EXPECT_EQ(copy(), 8) << "the writer had refreshed it";
  EXPECT_EQ(memory.use().current[static_cast<std::size_t>(MemoryTag::derived)], 2u);
}

TEST_F(ParameterTest, InitialValuesAreNormal) {
  ParameterList list(memory, false);
  list.add({normal("w", 512, 1025, 0.5)});
  initialise(context, list.all()[0], 1);
  const std::vector<float> values = values_of(list.all()[0]);
  const auto n = static_cast<double>(values.size());
  double mean = 0, square = 0, fourth = 0, within = 0, beyond = 0, neighbours = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = values[i] / 0.5;
    mean += x / n;
    square += x * x / n;
    fourth += x * x * x * x / n;
    within += std::abs(x) < 1 ? 1 / n : 0;
    beyond += std::abs(x) > 3 ? 1 / n : 0;
    if (i > 0) neighbours += x * values[i - 1] / 0.5 / n;
  }
  EXPECT_NEAR(mean, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(square, 1, 5 * std::sqrt(2 / n));
  EXPECT_NEAR(fourth / (square * square), 3, 0.06);
  EXPECT_NEAR(within, 0.6827, 0.004);
  EXPECT_NEAR(beyond, 0.0027, 0.0004);
  EXPECT_NEAR(neighbours, 0, 5 / std::sqrt(n));
}

TEST_F(ParameterTest, InitialValuesDependOnSeedAndNameAlone) {
  const auto values = [&](const std::vector<std::string>& names, std::uint64_t seed, int threads) {
    ParameterList list(memory, false);
    for (const std::string& name : names) list.add({normal(name, 129, 257, 1)});
    context.kernel.threads = threads;
    for (const Parameter& p : list.all()) initialise(context, p, seed);
    return values_of(*list.find("w"));
  };
  const std::vector<float> base = values({"w"}, 1, 1);
  EXPECT_EQ(values({"a", "w"}, 1, 1), base);
  EXPECT_EQ(values({"w", "b", "c"}, 1, 2), base);
  EXPECT_NE(values({"w"}, 2, 1), base);
  ParameterList pair(memory, false);
  pair.add({normal("w", 129, 257, 1)});
  pair.add({normal("u", 129, 257, 1)});
  for (const Parameter& p : pair.all()) initialise(context, p, 1);
  EXPECT_NE(values_of(pair.all()[1]), base);
  ParameterList parts(memory, false);
  parts.add({normal("v", 2, 257, 1), normal("w", 129, 257, 1)});
  initialise(context, *parts.find("w"), 1);
  EXPECT_EQ(values_of(*parts.find("w")), base) << "also as a part of a shared storage";
}

double deviation(const Parameter& p) {
  double squares = 0;
  for (const float x : values_of(p)) squares += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(squares / static_cast<double>(p.numel()));
}

TEST(Initialise, FollowsHuggingFace) {
  for (const bool gpt2 : {false, true}) {
    DecoderSpec spec = gpt2 ? gpt2_spec() : llama_spec();
    spec.hidden = 128;
    spec.head_dim = 32;
    spec.intermediate = 256;
    spec.layers = 8;
    spec.init_deviation = 0.02;
    TinyDecoder tiny(spec);
    for (const Parameter& p : tiny.decoder.parameters().all()) {
      if (p.vector) {
        EXPECT_FALSE(p.decay) << p.name;
        for (const float x : values_of(p)) ASSERT_EQ(x, p.name.ends_with(".bias") ? 0.0f : 1.0f) << p.name;
        continue;
      }
      EXPECT_TRUE(p.decay) << p.name;
      const bool residual = p.name.ends_with(".o.weight") || p.name.ends_with(".down.weight");
      const double want = gpt2 && residual ? 0.02 / 4 : 0.02;
      EXPECT_NEAR(deviation(p), want, 0.03 * want) << p.name;
    }
  }
}

}  // namespace
}  // namespace lode::test
