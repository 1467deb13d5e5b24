#include "ops/activation.h"

#include <numbers>

#include "ops/op_test.h"

namespace lode::test {
namespace {

OpCase swiglu_case(DType dtype, std::int64_t tokens, std::int64_t channels, Rng& rng) {
  OpCase op;
  op.inputs = {Doubles(tokens, 2 * channels).fill_normal(rng, dtype, 0, 2)};
  op.reference = [=](const auto& x, const auto&) {
    Doubles y(tokens, channels);
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t c = 0; c < channels; ++c) {
        const double gate = x[0].at(t, c), up = x[0].at(t, channels + c);
        y.at(t, c) = gate / (1 + std::exp(-gate)) * up;
      }
    }
    return std::vector<Doubles>{y};
  };
  op.run = [](Context& context, std::vector<Value> x, const std::vector<Weight*>&) {
    return std::vector<Value>{swiglu(context, x[0])};
  };
  return op;
}
TEST(Swiglu, ForwardAndGradients) {
  check_op_at_odd_sizes(swiglu_case);
}

TEST(Swiglu, RefusesAnOddWidth) {
  OpContext env;
  EXPECT_THROW(swiglu(env.context, {env.tensor(Doubles(2, 3))}), Error);
}

template <GeluKind kind>
OpCase gelu_case(DType dtype, std::int64_t tokens, std::int64_t channels, Rng& rng) {
  OpCase op;
  op.inputs = {Doubles(tokens, channels).fill_normal(rng, dtype, 0, 2)};
  op.reference = [](const auto& x, const auto&) {
    Doubles y = x[0];
    for (double& v : y.values) {
      const double inner = std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v);
      v = kind == GeluKind::erf ? 0.5 * v * std::erfc(-v / std::numbers::sqrt2)
                                : 0.5 * v * (1 + std::tanh(inner));
    }
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
