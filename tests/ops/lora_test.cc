#include "ops/lora.h"

#include "ops/linear.h"
#include "ops/linear_cross_entropy.h"
#include "ops/op_test.h"

namespace lode::test {
namespace {

Doubles product(const Doubles& x, const Doubles& w, double scale = 1) {
  Doubles y(x.rows, w.rows);
  for (std::int64_t t = 0; t < y.rows; ++t) {
    for (std::int64_t o = 0; o < y.cols; ++o) {
      double sum = 0;
      for (std::int64_t i = 0; i < w.cols; ++i) sum += x.at(t, i) * w.at(o, i);
      y.at(t, o) = scale * sum;
    }
  }
  return y;
}

// Two parts of ranks 2 and 3 in the output's first and last columns, as a module runs them: z from one
// product with the stacked As.
OpCase lora_case(DType dtype, std::int64_t tokens, std::int64_t in, Rng& rng) {
  OpCase op;
  op.threads_matter = true;
  op.inputs = {Doubles(tokens, in).fill_normal(rng, dtype)};
  op.weights = {Doubles(9, in).fill_normal(rng, dtype), Doubles(5, in).fill_normal(rng, dtype),
                Doubles(4, 2).fill_normal(rng, dtype), Doubles(3, 3).fill_normal(rng, dtype)};
  op.reference = [](const auto& x, const auto& w) {
    Doubles y = product(x[0], w[0]);
    const Doubles z = product(x[0], w[1]);
    for (std::int64_t t = 0; t < y.rows; ++t) {
      for (std::int64_t o = 0; o < 4; ++o) {
        for (std::int64_t r = 0; r < 2; ++r) y.at(t, o) += 0.5 * z.at(t, r) * w[2].at(o, r);
      }
      for (std::int64_t o = 0; o < 3; ++o) {
        for (std::int64_t r = 0; r < 3; ++r) y.at(t, 6 + o) += 2 * z.at(t, 2 + r) * w[3].at(o, r);
      }
    }
    return std::vector<Doubles>{y};
  };
  op.run = [](Context& context, std::vector<Value> x, const std::vector<Weight*>& w) {
    const Value z = scale_parts(context, linear(context, x[0], *w[1]), {{0, 2, 0.5f}, {2, 3, 2.0f}});
    return std::vector<Value>{
        add_low_rank(context, linear(context, x[0], *w[0]), z, {{w[2], 0, 0}, {w[3], 6, 2}})};
  };
  return op;
}

TEST(Lora, PairsBesideAProduct) {
  check_op_at_odd_sizes([](DType dtype, auto tokens, auto channels, Rng& rng) {
    return lora_case(dtype, tokens, channels, rng);
  });
}

TEST(Lora, GradientsWithAFrozenBase) {
  for (const bool x_wanted : {false, true}) {
    SCOPED_TRACE(x_wanted);
    std::vector<Doubles> b_gradients;
    for (const bool frozen : {false, true}) {
      OpContext env;
      Rng rng(1, "lora");
      FakeWeight w(env.memory, Doubles(4, 3).fill_normal(rng, DType::f32), !frozen);
      FakeWeight a(env.memory, Doubles(2, 3).fill_normal(rng, DType::f32));
      FakeWeight b(env.memory, Doubles(4, 2).fill_normal(rng, DType::f32));
      const Value x =
          make_value(env.context, env.tensor(Doubles(5, 3).fill_normal(rng, DType::f32)), x_wanted);
      Doubles dx;
      if (x_wanted) {
        env.tape.record(env.context, "leaf", x.gradient,
                        [&](Context&, Tape& tape) { dx = doubles_of(tape.gradient(x.gradient).view()); });
      }
      const Value z = linear(env.context, x, a);
      const Value y = add_low_rank(env.context, linear(env.context, x, w), z, {{&b, 0, 0}});
      ASSERT_TRUE(y.wants_gradient());
      const Doubles seed = Doubles(5, 4).fill_normal(rng, DType::f32);
      env.tape.record(env.context, "seed", kNoGradient,
                      [&](Context& c, Tape& tape) { tape.add_gradient(c, y.gradient, env.tensor(seed)); });
      env.tape.backward(env.context);
      EXPECT_EQ(w.sink().stale(), frozen) << "a frozen weight gets no gradient";
      EXPECT_EQ(dx.values.empty(), !x_wanted);
      b_gradients.push_back(doubles_of(b.sink().tensor().view()));
    }
    EXPECT_EQ(b_gradients[0].values, b_gradients[1].values);
  }
}

TEST(Lora, ShapesAreChecked) {
  OpContext env;
  Rng rng(2, "lora");
  FakeWeight b(env.memory, Doubles(4, 2));
  const Value y{env.tensor(Doubles(3, 5))}, z{env.tensor(Doubles(3, 2))}, other{env.tensor(Doubles(2, 2))};
  EXPECT_THROW(add_low_rank(env.context, y, z, {{&b, 2, 0}}), Error) << "beyond the columns of y";
  EXPECT_THROW(add_low_rank(env.context, y, z, {{&b, 0, 1}}), Error) << "beyond the columns of z";
  EXPECT_THROW(add_low_rank(env.context, y, other, {{&b, 0, 0}}), Error) << "another number of tokens";
}

// The head with an adapter is the head of W + B A.
TEST(Lora, HeadEqualsItsMergedWeight) {
  for (const std::int64_t chunk : {0, 5}) {
    Rng rng(3, "head");
    const Doubles x = Doubles(17, 6).fill_normal(rng, DType::f32),
                  w = Doubles(11, 6).fill_normal(rng, DType::f32),
                  a = Doubles(2, 6).fill_normal(rng, DType::f32),
                  b = Doubles(11, 2).fill_normal(rng, DType::f32);
    const Batch batch = odd_batch(17, 11, rng);
    Doubles merged = w;
    for (std::int64_t v = 0; v < 11; ++v) {
      for (std::int64_t c = 0; c < 6; ++c) {
        for (std::int64_t r = 0; r < 2; ++r) merged.at(v, c) += b.at(v, r) * a.at(r, c);
      }
    }
    const auto run = [&](bool adapted, Doubles& dx, Doubles& da, Doubles& db) {
      OpContext env;
      FakeWeight weight(env.memory, adapted ? w : merged, !adapted), down(env.memory, a), up(env.memory, b);
      const Value value = make_value(env.context, env.tensor(x), true);
      env.tape.record(env.context, "leaf", value.gradient,
                      [&](Context&, Tape& tape) { dx = doubles_of(tape.gradient(value.gradient).view()); });
      LowRankHead head;
      if (adapted) head = {linear(env.context, value, down), &up};
      const TokenLosses losses = linear_cross_entropy(env.context, value, weight, batch, 0.25f, chunk, head);
      env.tape.backward(env.context);
      if (adapted) {
        da = doubles_of(down.sink().tensor().view());
        db = doubles_of(up.sink().tensor().view());
      } else {
        // d(B A): dA = B^T dW, dB = dW A^T.
        const Doubles dw = doubles_of(weight.sink().tensor().view());
        da = Doubles(2, 6);
        db = Doubles(11, 2);
        for (std::int64_t v = 0; v < 11; ++v) {
          for (std::int64_t c = 0; c < 6; ++c) {
            for (std::int64_t r = 0; r < 2; ++r) {
              da.at(r, c) += b.at(v, r) * dw.at(v, c);
              db.at(v, r) += dw.at(v, c) * a.at(r, c);
            }
          }
        }
      }
      return losses.sum;
    };
    Doubles dx, da, db, want_dx, want_da, want_db;
    const double loss = run(true, dx, da, db), want = run(false, want_dx, want_da, want_db);
    EXPECT_NEAR(loss, want, 1e-5 * want);
    expect_close(dx, want_dx, 1e-5, "dx");
    expect_close(da, want_da, 1e-5, "dA");
    expect_close(db, want_db, 1e-5, "dB");
  }
}

TEST(EmbeddingNoise, BoundsVarianceAndKeys) {
  OpContext env;
  env.context.training = true;
  env.context.seed = 5;
  const auto noise = [&](std::vector<std::int32_t> lengths, std::vector<std::int64_t> ids, std::int32_t total,
                         float alpha) {
    Value y{env.tensor(Doubles(total, 64))};
    const auto n = static_cast<std::size_t>(total);
    const Batch batch(std::vector<std::int32_t>(n), std::vector<std::int32_t>(n, kIgnoreLabel),
                      std::vector<float>(n), Segments(lengths, ids, total));
    add_embedding_noise(env.context, y, batch, alpha);
    return doubles_of(y.data.view());
  };
  const Doubles one = noise({100}, {7}, 128, 5);
  const double size = 5 / std::sqrt(100.0 * 64);
  double squares = 0, largest = 0;
  for (std::int64_t i = 0; i < 6400; ++i) {
    const double v = one.values[static_cast<std::size_t>(i)];
    squares += v * v / 6400;
    largest = std::max(largest, std::abs(v));
  }
  EXPECT_NEAR(squares, size * size / 3, 0.05 * size * size / 3);
  EXPECT_LE(largest, size);
  EXPECT_GT(largest, 0.99 * size);
  for (std::size_t i = 6400; i < one.values.size(); ++i)
    ASSERT_EQ(one.values[i], 0) << "padding has no noise";

  const Doubles packed = noise({28, 100}, {9, 7}, 128, 5);
  EXPECT_TRUE(std::equal(one.values.begin(), one.values.begin() + 6400, packed.values.begin() + 28 * 64))
      << "the sample's noise does not depend on where it lies";
  EXPECT_NE(noise({100}, {8}, 128, 5).values, one.values);
  env.context.step = 1;
  EXPECT_NE(noise({100}, {7}, 128, 5).values, one.values);
  EXPECT_EQ(noise({100}, {7}, 128, 0).values, Doubles(128, 64).values);
  env.context.training = false;
  EXPECT_EQ(noise({100}, {7}, 128, 5).values, Doubles(128, 64).values);
}

}  // namespace
}  // namespace lode::test
