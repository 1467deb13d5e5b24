#include "ops/linear.h"

#include "ops/op_test.h"

namespace lode::test {
namespace {

OpCase linear_case(DType dtype, std::int64_t tokens, std::int64_t in, std::int64_t out, bool with_bias,
                   Rng& rng) {
  OpCase op;
  op.threads_matter = true;
  op.inputs = {Doubles(tokens, in).fill_normal(rng, dtype)};
  op.weights = {Doubles(out, in).fill_normal(rng, dtype)};
  if (with_bias) op.weights.push_back(Doubles(1, out).fill_normal(rng, dtype));
  op.reference = [with_bias](const auto& x, const auto& w) {
    Doubles y(x[0].rows, w[0].rows);
    for (std::int64_t t = 0; t < y.rows; ++t) {
      for (std::int64_t o = 0; o < y.cols; ++o) {
        double sum = with_bias ? w[1].at(0, o) : 0;
        for (std::int64_t i = 0; i < w[0].cols; ++i) sum += x[0].at(t, i) * w[0].at(o, i);
        y.at(t, o) = sum;
      }
    }
    return std::vector<Doubles>{y};
  };
  op.run = [with_bias](Context& context, std::vector<Value> x, const std::vector<Weight*>& w) {
    return std::vector<Value>{linear(context, x[0], *w[0], with_bias ? w[1] : nullptr)};
  };
  return op;
}

TEST(Linear, WithoutBias) {
  check_op_at_odd_sizes([](DType dtype, auto tokens, auto channels, Rng& rng) {
    return linear_case(dtype, tokens, channels, 66 - channels, false, rng);
  });
}
TEST(Linear, WithBias) {
  check_op_at_odd_sizes([](DType dtype, auto tokens, auto channels, Rng& rng) {
    return linear_case(dtype, tokens, 66 - channels, channels, true, rng);
  });
}

// The gradients that one use of the op leaves, for every choice of what is wanted.
TEST(Linear, OnlyWantedGradientsAreMade) {
  for (const bool x_wanted : {false, true}) {
    for (const bool weight_wanted : {false, true}) {
      for (const bool bias_wanted : {false, true}) {
        SCOPED_TRACE(format("x {} weight {} bias {}", x_wanted, weight_wanted, bias_wanted));
        OpContext env;
        Rng rng(1, "linear");
        FakeWeight w(env.memory, Doubles(4, 3).fill_normal(rng, DType::f32), weight_wanted);
        FakeWeight b(env.memory, Doubles(1, 4).fill_normal(rng, DType::f32), bias_wanted);
        const Value x =
            make_value(env.context, env.tensor(Doubles(5, 3).fill_normal(rng, DType::f32)), x_wanted);
        bool reached = false;
        if (x_wanted)
          env.tape.record(env.context, "leaf", x.gradient, [&](Context&, Tape&) { reached = true; });
        const Value y = linear(env.context, x, w, &b);
        EXPECT_EQ(y.wants_gradient(), x_wanted || weight_wanted || bias_wanted);
        if (!y.wants_gradient()) continue;
        env.tape.add_gradient(env.context, y.gradient,
                              env.tensor(Doubles(5, 4).fill_normal(rng, DType::f32)));
        env.tape.backward(env.context);
        EXPECT_EQ(reached, x_wanted);
        EXPECT_EQ(!w.sink().stale(), weight_wanted);
        EXPECT_EQ(!b.sink().stale(), bias_wanted);
      }
    }
  }
}

TEST(Linear, GradientsOfTwoUsesAdd) {
  OpContext env;
  FakeWeight w(env.memory, Doubles(1, 1)), b(env.memory, Doubles(1, 1));
  for (const double value : {2.0, 5.0}) {
    Doubles one(1, 1);
    one.values[0] = value;
    const Value y = linear(env.context, {env.tensor(one)}, w, &b);
    Doubles seed(1, 1);
    seed.values[0] = 3;
    env.tape.add_gradient(env.context, y.gradient, env.tensor(seed));
    env.tape.backward(env.context);
  }
  EXPECT_EQ(doubles_of(w.sink().tensor().view()).values[0], 21);
  EXPECT_EQ(doubles_of(b.sink().tensor().view()).values[0], 6);
  w.gradient()->reset();
  EXPECT_TRUE(w.sink().stale());
}

TEST(Linear, RefusesWrongShapes) {
  OpContext env;
  FakeWeight w(env.memory, Doubles(4, 3)), bias(env.memory, Doubles(1, 3));
  EXPECT_THROW(linear(env.context, {env.tensor(Doubles(2, 4))}, w), Error);
  EXPECT_THROW(linear(env.context, {env.tensor(Doubles(2, 3))}, w, &bias), Error);
}

}  // namespace
}  // namespace lode::test
