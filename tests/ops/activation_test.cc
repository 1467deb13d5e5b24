#include "ops/activation.h"

#include <numbers>

#include "ops/op_test.h"

namespace lode::test {
namespace {

double act(GateKind kind, double v) {
  if (kind == GateKind::silu) return v / (1 + std::exp(-v));
  if (kind == GateKind::gelu_erf) return v * 0.5 * std::erfc(-v / std::numbers::sqrt2);
  return 0.5 * v * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v)));
}

template <GateKind kind>
OpCase gated_case(DType dtype, std::int64_t tokens, std::int64_t channels, Rng& rng) {
  OpCase op;
  op.inputs = {Doubles(tokens, 2 * channels).fill_normal(rng, dtype, 0, 2)};
  op.reference = [=](const auto& x, const auto&) {
    Doubles y(tokens, channels);
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t c = 0; c < channels; ++c)
        y.at(t, c) = act(kind, x[0].at(t, c)) * x[0].at(t, channels + c);
    }
    return std::vector<Doubles>{y};
  };
  op.run = [](Context& context, std::vector<Value> x, const std::vector<Weight*>&) {
    return std::vector<Value>{gated(context, x[0], kind)};
  };
  return op;
}
TEST(Gated, Silu) {
  check_op_at_odd_sizes(gated_case<GateKind::silu>);
}
TEST(Gated, GeluErf) {
  check_op_at_odd_sizes(gated_case<GateKind::gelu_erf>);
}
TEST(Gated, GeluTanh) {
  check_op_at_odd_sizes(gated_case<GateKind::gelu_tanh>);
}

TEST(Gated, RefusesAnOddWidth) {
  OpContext env;
  EXPECT_THROW(gated(env.context, {env.tensor(Doubles(2, 3))}, GateKind::silu), Error);
}

template <GeluKind kind>
OpCase gelu_case(DType dtype, std::int64_t tokens, std::int64_t channels, Rng& rng) {
  OpCase op;
  op.inputs = {Doubles(tokens, channels).fill_normal(rng, dtype, 0, 2)};
  op.reference = [](const auto& x, const auto&) {
    Doubles y = x[0];
    for (double& v : y.values) v = act(kind == GeluKind::erf ? GateKind::gelu_erf : GateKind::gelu_tanh, v);
    return std::vector<Doubles>{y};
  };
  op.run = [](Context& context, std::vector<Value> x, const std::vector<Weight*>&) {
    return std::vector<Value>{gelu(context, x[0], kind)};
  };
  return op;
}
TEST(Gelu, Erf) {
  check_op_at_odd_sizes(gelu_case<GeluKind::erf>);
}
TEST(Gelu, Tanh) {
  check_op_at_odd_sizes(gelu_case<GeluKind::tanh>);
}

}  // namespace
}  // namespace lode::test
