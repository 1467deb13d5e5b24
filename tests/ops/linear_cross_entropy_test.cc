#include "ops/linear_cross_entropy.h"

#include "ops/op_test.h"
#include "temp_folder.h"

namespace lode::test {
namespace {

constexpr double kScale = 0.125;

// Losses per token of unfused logits, in double precision.
std::vector<double> reference_losses(const Doubles& x, const Doubles& w, const Batch& batch) {
  std::vector<double> losses(static_cast<std::size_t>(x.rows), 0.0);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    const auto at = static_cast<std::size_t>(t);
    if (batch.labels()[at] == kIgnoreLabel) continue;
    std::vector<double> z(static_cast<std::size_t>(w.rows), 0.0);
    double top = -INFINITY, total = 0;
    for (std::int64_t v = 0; v < w.rows; ++v) {
      for (std::int64_t c = 0; c < x.cols; ++c) z[static_cast<std::size_t>(v)] += x.at(t, c) * w.at(v, c);
      top = std::max(top, z[static_cast<std::size_t>(v)]);
    }
    for (const double value : z) total += std::exp(value - top);
    losses[at] = top + std::log(total) - z[static_cast<std::size_t>(batch.labels()[at])];
  }
  return losses;
}

OpCase head_case(DType dtype, const Batch& batch, std::int64_t channels, std::int64_t vocab,
                 std::int64_t chunk, Rng& rng) {
  OpCase op;
  op.inputs = {Doubles(batch.num_tokens(), channels).fill_normal(rng, dtype)};
  op.weights = {Doubles(vocab, channels).fill_normal(rng, dtype, 0, 0.5)};
  op.is_loss = true;
  op.threads_matter = true;
  op.reference = [&batch](const auto& x, const auto& w) {
    Doubles total(1, 1);
    const std::vector<double> losses = reference_losses(x[0], w[0], batch);
    for (std::size_t t = 0; t < losses.size(); ++t) {
      total.values[0] += kScale * static_cast<double>(batch.loss_weight()[t]) * losses[t];
    }
    return std::vector<Doubles>{total};
  };
  op.run = [&batch, chunk, inputs = op.inputs, weights = op.weights](Context& context, std::vector<Value> x,
                                                                     const std::vector<Weight*>& w) {
    const TokenLosses out =
        linear_cross_entropy(context, x[0], *w[0], batch, static_cast<float>(kScale), chunk);
    const std::vector<double> want = reference_losses(inputs[0], weights[0], batch);
    double sum = 0;
    for (std::size_t t = 0; t < want.size(); ++t) {
      EXPECT_NEAR(out.loss[t], want[t], 1e-5 * (1 + want[t])) << "token " << t;
      sum += static_cast<double>(out.loss[t]);
    }
    EXPECT_EQ(out.sum, sum);
    EXPECT_EQ(out.num_targets, batch.num_targets());
    return std::vector<Value>{};
  };
  return op;
}

TEST(LinearCrossEntropy, LossesAndGradients) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t tokens : {1, 7, 129}) {
      for (const std::int64_t channels : {1, 3, 17, 65}) {
        SCOPED_TRACE(format("{} [{}, {}]", name_of(dtype), tokens, channels));
        Rng rng(8, "head");
        // The first label counts, so that one token alone has a gradient.
        Batch random = odd_batch(tokens, 11, rng);
        std::vector<std::int32_t> labels = random.labels();
        std::vector<float> weights = random.loss_weight();
        labels[0] = 4;
        weights[0] = 1.5f;
        const Batch batch(random.tokens(), labels, weights, random.segments());
        check_op(head_case(dtype, batch, channels, 11, 0, rng), dtype);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Masked prompts: the rows of the few targets are gathered, their gradient goes back to where they were.
TEST(LinearCrossEntropy, FewTargetsAmongManyTokens) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Rng rng(9, "few");
    const Batch random = odd_batch(200, 23, rng);
    std::vector<std::int32_t> labels(200, kIgnoreLabel);
    std::vector<float> weights(200, 0.0f);
    for (const std::size_t t : {0, 63, 64, 199}) {
      labels[t] = static_cast<std::int32_t>(t) % 23;
      weights[t] = 0.5f + static_cast<float>(t) / 100;
    }
    const Batch batch(random.tokens(), labels, weights, random.segments());
    check_op(head_case(dtype, batch, 17, 23, 0, rng), dtype);
  }
}

TEST(LinearCrossEntropy, ChunksGiveTheSame) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Rng rng(8, "chunks");
    const Batch batch = odd_batch(300, 23, rng);
    const OpCase chunked = head_case(dtype, batch, 17, 23, 128, rng);  // 128, 128 and 44 tokens
    check_op(chunked, dtype);
    OpCase whole = chunked;
    whole.run = [&](Context& context, std::vector<Value> x, const std::vector<Weight*>& w) {
      linear_cross_entropy(context, x[0], *w[0], batch, static_cast<float>(kScale));
      return std::vector<Value>{};
    };
    const OpResult a = run_op(chunked, dtype, 1, {}), b = run_op(whole, dtype, 1, {});
    EXPECT_EQ(a.input_gradients[0].values, b.input_gradients[0].values);
    expect_close(a.weight_gradients[0], b.weight_gradients[0], 1e-5, "weight");
  }
}

struct HeadResult {
  TokenLosses losses;
  Doubles dx;
};
HeadResult run_head(DType dtype, const Doubles& x, const Doubles& w, const Batch& batch, bool trainable) {
  OpContext env(dtype, 2);
  FakeWeight weight(env.memory, w, trainable);
  const Value in = make_value(env.context, env.tensor(x), true);
  HeadResult out;
  env.tape.record(env.context, "leaf", in.gradient,
                  [&](Context&, Tape& tape) { out.dx = doubles_of(tape.gradient(in.gradient).view()); });
  out.losses = linear_cross_entropy(env.context, in, weight, batch, static_cast<float>(kScale));
  env.tape.backward(env.context);
  return out;
}

// Rows with a target move together in place when nobody else holds x.
TEST(LinearCrossEntropy, FewTargetsTakeNoMoreMemoryThanMany) {
  constexpr std::int64_t kCount = 256, kWidth = 24;
  Rng rng(6, "few");
  const Doubles x = Doubles(kCount, kWidth).fill_normal(rng, DType::f32);
  const Doubles w = Doubles(50, kWidth).fill_normal(rng, DType::f32);
  const auto run = [&](std::int64_t every, bool shared) {
    std::vector<std::int32_t> tokens(kCount, 1), labels(kCount, kIgnoreLabel);
    std::vector<float> weights(kCount, 0.0f);
    for (std::int64_t t = 0; t < kCount; t += every) {
      labels[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(t % 50);
      weights[static_cast<std::size_t>(t)] = 1;
    }
    const std::int32_t length[] = {kCount};
    const std::int64_t sample[] = {0};
    const Batch batch(tokens, labels, weights, Segments(length, sample, kCount));
    OpContext env(DType::f32, 2);
    FakeWeight weight(env.memory, w, true);
    Value in = make_value(env.context, env.tensor(x), true);
    const GradientId id = in.gradient;
    const Tensor other = shared ? in.data : Tensor();
    Doubles dx;
    env.tape.record(env.context, "leaf", id,
                    [&](Context&, Tape& tape) { dx = doubles_of(tape.gradient(id).view()); });
    linear_cross_entropy(env.context, std::move(in), weight, batch, 1);
    env.tape.backward(env.context);
    return std::pair(dx.values, env.memory.use().peak[static_cast<std::size_t>(MemoryTag::activations)]);
  };
  for (const std::int64_t every : {3, 7, 200}) {
    const auto alone = run(every, false), shared = run(every, true);
    EXPECT_EQ(alone.first, shared.first) << every;
    EXPECT_LT(alone.second, shared.second) << every;
    EXPECT_LE(alone.second, run(1, false).second) << every;
  }
}

TokenLosses evaluate_head(DType dtype, const Doubles& x, const Doubles& w, const Batch& batch) {
  OpContext env(dtype, 2, false);
  FakeWeight weight(env.memory, w);
  const TokenLosses losses = linear_cross_entropy(env.context, {env.tensor(x)}, weight, batch, 1);
  // A block of logits: 1,024 tokens x 2,048.
  EXPECT_LE(env.memory.use().peak[static_cast<std::size_t>(MemoryTag::workspace)], 12u << 20);
  return losses;
}

// A frozen head meets its vocabulary in blocks of 2,048 and its tokens in chunks of 1,024, and so does any
// without a tape; a trained one in chunks of tokens alone. Labels lie at the edges of blocks, and in rows of
// the weight that are there twice.
TEST(LinearCrossEntropy, FrozenHeadTakesTheVocabularyInBlocks) {
  constexpr std::int64_t kVocabulary = 4500, kWidth = 10, kCount = 1100;
  const std::vector<std::int32_t> edges = {0, 3, 2047, 2048, 2050, 4095, 4096, 4499};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(name_of(dtype));
    Rng rng(5, "blocks");
    Doubles x = Doubles(kCount, kWidth).fill_normal(rng, dtype);
    Doubles w = Doubles(kVocabulary, kWidth).fill_normal(rng, dtype, 0, 0.5);
    const Batch random = odd_batch(kCount, kVocabulary, rng);
    std::vector<std::int32_t> labels = random.labels();
    std::vector<float> weights = random.loss_weight();
    for (std::size_t i = 0; i < edges.size(); ++i) {
      labels[i] = labels[kCount - 1 - i] = edges[i];
      weights[i] = weights[kCount - 1 - i] = 0.5f + static_cast<float>(i);
    }
    // Row 2050 equals row 3 and is what tokens 1 and 4, whose labels they are, like best: the first one
    // counts.
    for (std::int64_t c = 0; c < kWidth; ++c) {
      w.at(3, c) = w.at(2050, c) = 4;
      x.at(1, c) = x.at(4, c) = 1;
    }
    const Batch batch(random.tokens(), labels, weights, random.segments());
    const HeadResult frozen = run_head(dtype, x, w, batch, false),
                     trained = run_head(dtype, x, w, batch, true);
    for (std::size_t t = 0; t < trained.losses.loss.size(); ++t)
      EXPECT_NEAR(frozen.losses.loss[t], trained.losses.loss[t], 1e-5 * (1 + trained.losses.loss[t])) << t;
    EXPECT_EQ(frozen.losses.correct, trained.losses.correct);
    EXPECT_EQ(frozen.losses.correct[1], 1);
    EXPECT_EQ(frozen.losses.correct[4], 0);
    expect_close(frozen.dx, trained.dx, dtype == DType::f32 ? 1e-5 : 1e-2, "dx");
    const TokenLosses evaluated = evaluate_head(dtype, x, w, batch);
    EXPECT_EQ(evaluated.loss, frozen.losses.loss);
    EXPECT_EQ(evaluated.correct, frozen.losses.correct);
  }
}

// What has no label counts for nothing, whatever its weight says; a batch without any label has gradients of
// zero.
TEST(LinearCrossEntropy, IgnoredLabelsCountForNothing) {
  OpContext env;
  Rng rng(1, "ignored");
  const Segments segments(std::vector<std::int32_t>{3}, std::vector<std::int64_t>{0}, 3);
  const Batch batch({0, 1, 2}, {kIgnoreLabel, kIgnoreLabel, kIgnoreLabel}, {0, 0, 0}, segments);
  FakeWeight w(env.memory, Doubles(5, 2).fill_normal(rng, DType::f32));
  const Value x = make_value(env.context, env.tensor(Doubles(3, 2).fill_normal(rng, DType::f32)), true);
  Doubles got;
  env.tape.record(env.context, "leaf", x.gradient,
                  [&](Context&, Tape& tape) { got = doubles_of(tape.gradient(x.gradient).view()); });
  const TokenLosses out = linear_cross_entropy(env.context, x, w, batch, 1);
  env.tape.backward(env.context);
  EXPECT_EQ(out.sum, 0);
  EXPECT_EQ(out.num_targets, 0);
  EXPECT_EQ(out.num_correct, 0);
  EXPECT_EQ(got.values, std::vector<double>(6, 0.0));
  EXPECT_EQ(doubles_of(w.sink().tensor().view()).values, std::vector<double>(10, 0.0));
}

TEST(LinearCrossEntropy, CountsCorrectTokens) {
  OpContext env(DType::f32, 1, false);
  Doubles identity(3, 3);
  for (std::int64_t i = 0; i < 3; ++i) identity.at(i, i) = 1;
  FakeWeight w(env.memory, identity);
  const Segments segments(std::vector<std::int32_t>{3}, std::vector<std::int64_t>{0}, 3);
  const Batch batch({0, 0, 0}, {0, 2, kIgnoreLabel}, {1, 1, 0}, segments);
  const TokenLosses out = linear_cross_entropy(env.context, {env.tensor(identity)}, w, batch, 1);
  EXPECT_EQ(out.correct, (std::vector<std::uint8_t>{1, 0, 0}));
  EXPECT_EQ(out.num_correct, 1);
  EXPECT_TRUE(w.sink().stale()) << "without a tape there is no gradient";
}

TEST(LinearCrossEntropy, RefusesLabelsOutsideTheVocabulary) {
  OpContext env;
  FakeWeight w(env.memory, Doubles(5, 2));
  const Segments segments(std::vector<std::int32_t>{1}, std::vector<std::int64_t>{0}, 1);
  for (const std::int32_t bad : {5, -1}) {
    const Batch batch({0}, {bad}, {1}, segments);
    EXPECT_NE(error_of([&] {
                linear_cross_entropy(env.context, {env.tensor(Doubles(1, 2))}, w, batch, 1);
              }).find(format("label {} is outside the model's vocabulary of 5", bad)),
              std::string::npos);
  }
}

TEST(LinearCrossEntropy, NamesTheTokenOfANonFiniteLoss) {
  OpContext env;
  NonFinite bad;
  env.context.search = &bad;
  Doubles weight(2, 1), x(3, 1);
  weight.values = {1e30, -1e30};
  x.values = {1, 1, 1e30};
  FakeWeight w(env.memory, weight);
  const Segments segments(std::vector<std::int32_t>{3}, std::vector<std::int64_t>{0}, 3);
  linear_cross_entropy(env.context, {env.tensor(x)}, w, Batch({0, 0, 0}, {0, 0, 0}, {1, 1, 1}, segments), 1);
  EXPECT_TRUE(bad.found);
  EXPECT_EQ(bad.where, "cross entropy");
  EXPECT_EQ(bad.row, 2);
}

// Huge logits neither overflow nor lose the label's entry.
TEST(LinearCrossEntropy, LargeLogits) {
  OpContext env;
  Doubles weight(2, 1), x(1, 1);
  weight.values = {300, -300};
  x.values = {100};
  FakeWeight w(env.memory, weight);
  const Batch batch({0}, {1}, {1}, Segments(std::vector<std::int32_t>{1}, std::vector<std::int64_t>{0}, 1));
  EXPECT_FLOAT_EQ(static_cast<float>(linear_cross_entropy(env.context, {env.tensor(x)}, w, batch, 1).sum),
                  60000.0f);
}

}  // namespace
}  // namespace lode::test
