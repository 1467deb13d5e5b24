#include "ops/norm.h"

#include "ops/op_test.h"

namespace lode::test {
namespace {

constexpr float kEps = 1e-5f;

// Outputs h and y; weights: weight (and bias). Both outputs get a gradient.
OpCase norm_case(DType dtype, std::int64_t tokens, std::int64_t channels, NormKind kind, bool with_delta,
                 Rng& rng) {
  const bool layer = kind == NormKind::layer;
  OpCase op;
  op.inputs = {Doubles(tokens, channels).fill_normal(rng, dtype, 0.5)};
  if (with_delta) op.inputs.push_back(Doubles(tokens, channels).fill_normal(rng, dtype));
  op.weights = {Doubles(1, channels).fill_normal(rng, dtype, 1, 0.3)};
  if (layer) op.weights.push_back(Doubles(1, channels).fill_normal(rng, dtype));
  op.reference = [=](const auto& x, const auto& w) {
    Doubles h = x[0], y(tokens, channels);
    for (std::size_t i = 0; i < h.values.size() && with_delta; ++i) h.values[i] += x[1].values[i];
    for (std::int64_t t = 0; t < tokens; ++t) {
      double mean = 0, square = 0;
      for (std::int64_t c = 0; c < channels && layer; ++c) mean += h.at(t, c) / static_cast<double>(channels);
      for (std::int64_t c = 0; c < channels; ++c) square += (h.at(t, c) - mean) * (h.at(t, c) - mean);
      const double rstd = 1 / std::sqrt(square / static_cast<double>(channels) + static_cast<double>(kEps));
      for (std::int64_t c = 0; c < channels; ++c) {
        y.at(t, c) = (h.at(t, c) - mean) * rstd * w[0].at(0, c) + (layer ? w[1].at(0, c) : 0);
      }
    }
    return std::vector<Doubles>{h, y};
  };
  op.run = [=](Context& context, std::vector<Value> x, const std::vector<Weight*>& w) {
    AddNorm out =
        add_norm(context, x[0], with_delta ? &x[1] : nullptr, {kind, kEps, w[0], layer ? w[1] : nullptr});
    return std::vector<Value>{out.h, out.y};
  };
  // A row of one value has the gradient eps / (x^2 + eps)^1.5 times a weight: sums of rounded statistics
  // show.
  op.f32_error = 5e-5;
  op.bf16_error = 3e-2;
  return op;
}

void check_norm(NormKind kind, bool with_delta) {
  check_op_at_odd_sizes([=](DType dtype, auto tokens, auto channels, Rng& rng) {
    return norm_case(dtype, tokens, channels, kind, with_delta, rng);
  });
}
TEST(AddNorm, Rms) {
  check_norm(NormKind::rms, false);
}
TEST(AddNorm, RmsWithDelta) {
  check_norm(NormKind::rms, true);
}
TEST(AddNorm, Layer) {
  check_norm(NormKind::layer, false);
}
TEST(AddNorm, LayerWithDelta) {
  check_norm(NormKind::layer, true);
}

// y and h of the fused op against add_rows and a plain norm, and the gradients of both spellings: bit-equal
// forward.
TEST(AddNorm, EqualsItsUnfusedSpelling) {
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Rng rng(3, "unfused");
      OpCase fused = norm_case(dtype, 37, 65, kind, true, rng);
      OpCase unfused = fused;
      unfused.run = [kind](Context& context, std::vector<Value> x, const std::vector<Weight*>& w) {
        Value h = make_value(context, context.activation(x[0].data.rows(), x[0].data.cols()), true);
        add_rows(context.dtype, context.kernel, x[0].data.view(), x[1].data.view(), h.data.view());
        context.tape->record(context, "add", h.gradient,
                             [id = h.gradient, a = x[0].gradient, b = x[1].gradient](Context& c, Tape& tape) {
                               const Tensor dh = tape.take_gradient(id);
                               tape.add_gradient(c, a, dh);
                               tape.add_gradient(c, b, dh);
                             });
        AddNorm out =
            add_norm(context, h, nullptr, {kind, kEps, w[0], kind == NormKind::layer ? w[1] : nullptr});
        return std::vector<Value>{out.h, out.y};
      };
      std::vector<Doubles> seeds(2, Doubles(37, 65));
      for (Doubles& seed : seeds) seed.fill_normal(rng, dtype);
      const OpResult a = run_op(fused, dtype, 1, seeds), b = run_op(unfused, dtype, 1, seeds);
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(a.outputs[i].values, b.outputs[i].values);
        EXPECT_EQ(a.input_gradients[i].values, b.input_gradients[i].values);
      }
      for (std::size_t i = 0; i < a.weight_gradients.size(); ++i) {
        EXPECT_EQ(a.weight_gradients[i].values, b.weight_gradients[i].values);
      }
    }
  }
}

// h is used and y is not: the gradient of h still reaches x and delta.
TEST(AddNorm, PassesOnTheGradientOfHAlone) {
  for (const bool with_delta : {false, true}) {
    OpContext env;
    Rng rng(4, "h alone");
    const Doubles seed = Doubles(3, 5).fill_normal(rng, DType::f32);
    FakeWeight weight(env.memory, Doubles(1, 5).fill_normal(rng, DType::f32, 1));
    std::vector<Value> x;
    std::vector<Doubles> got(2);
    for (std::size_t i = 0; i < 2; ++i) {
      x.push_back(make_value(env.context, env.tensor(Doubles(3, 5).fill_normal(rng, DType::f32)), true));
      env.tape.record(env.context, "leaf", x[i].gradient,
                      [&got, i, id = x[i].gradient](Context&, Tape& tape) {
                        got[i] = doubles_of(tape.gradient(id).view());
                      });
    }
    const AddNorm out =
        add_norm(env.context, x[0], with_delta ? &x[1] : nullptr, {NormKind::rms, kEps, &weight, nullptr});
    env.tape.add_gradient(env.context, out.h.gradient, env.tensor(seed));
    env.tape.backward(env.context);
    EXPECT_EQ(got[0].values, seed.values);
    if (with_delta) {
      EXPECT_EQ(got[1].values, seed.values);
    }
  }
}

TEST(AddNorm, LeavesItsInputsAlone) {
  OpContext env;
  Rng rng(4, "inputs");
  const Doubles x = Doubles(3, 5).fill_normal(rng, DType::f32),
                d = Doubles(3, 5).fill_normal(rng, DType::f32);
  FakeWeight weight(env.memory, Doubles(1, 5));
  const Value xv{env.tensor(x)}, dv{env.tensor(d)};
  add_norm(env.context, xv, &dv, {NormKind::rms, kEps, &weight, nullptr});
  EXPECT_EQ(doubles_of(xv.data.view()).values, x.values);
  EXPECT_EQ(doubles_of(dv.data.view()).values, d.values);
  EXPECT_THROW(add_norm(env.context, {env.tensor(Doubles(3, 4))}, nullptr, {NormKind::rms, kEps, &weight}),
               Error);
}

OpCase offset_case(DType dtype, std::int64_t tokens, std::int64_t channels, Rng& rng) {
  OpCase op = norm_case(dtype, tokens, channels, NormKind::rms, true, rng);
  op.reference = [plain = op.reference](const auto& x, const auto& w) {
    std::vector<Doubles> factor = w;
    for (double& value : factor[0].values) value += 1;
    return plain(x, factor);
  };
  op.run = [](Context& context, std::vector<Value> x, const std::vector<Weight*>& w) {
    AddNorm out = add_norm(context, x[0], &x[1], {NormKind::rms, kEps, w[0], nullptr, 1});
    return std::vector<Value>{out.h, out.y};
  };
  return op;
}
TEST(AddNorm, WeightCentredOnZero) {
  check_op_at_odd_sizes(offset_case);
}

// 3 query heads, 2 key heads, 2 columns behind them that stay.
OpCase heads_case(DType dtype, std::int64_t tokens, std::int64_t head_dim, Rng& rng) {
  OpCase op;
  op.inputs = {Doubles(tokens, 5 * head_dim + 2).fill_normal(rng, dtype, 0.5)};
  for (int i = 0; i < 2; ++i) op.weights.push_back(Doubles(1, head_dim).fill_normal(rng, dtype, 0.2, 0.3));
  op.reference = [=](const auto& x, const auto& w) {
    Doubles y = x[0];
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t head = 0; head < 5; ++head) {
        double square = 0;
        const std::int64_t at = head * head_dim;
        for (std::int64_t c = 0; c < head_dim; ++c) square += x[0].at(t, at + c) * x[0].at(t, at + c);
        const double rstd = 1 / std::sqrt(square / static_cast<double>(head_dim) + static_cast<double>(kEps));
        for (std::int64_t c = 0; c < head_dim; ++c)
          y.at(t, at + c) *= rstd * (head < 3 ? 1 + w[0].at(0, c) : w[1].at(0, c));
      }
    }
    return std::vector<Doubles>{y};
  };
  op.run = [](Context& context, std::vector<Value> x, const std::vector<Weight*>& w) {
    return std::vector<Value>{norm_heads(context, std::move(x[0]), 3, 2,
                                         {NormKind::rms, kEps, w[0], nullptr, 1},
                                         {NormKind::rms, kEps, w[1]})};
  };
  op.f32_error = 5e-5;
  op.bf16_error = 3e-2;
  return op;
}
TEST(NormHeads, ForwardAndGradients) {
  check_op_at_odd_sizes(heads_case);
}

}  // namespace
}  // namespace lode::test
