#include "ops/attention.h"

#include "ops/op_test.h"

namespace lode::test {
namespace {

Doubles reference_attention(const Doubles& qkv, const Segments& segments, const AttentionShape& s) {
  Doubles o(qkv.rows, s.heads * s.head_dim);
  const std::int64_t k_begin = s.heads * s.head_dim, v_begin = k_begin + s.kv_heads * s.head_dim;
  for (const Segment& segment : segments.list()) {
    if (segment.padding) continue;
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const std::int64_t g = h / (s.heads / s.kv_heads);
      for (std::int64_t i = segment.begin; i < segment.begin + segment.length; ++i) {
        std::vector<double> p;
        double top = -INFINITY, total = 0;
        const std::int64_t first =
            s.window == 0 ? segment.begin : std::max<std::int64_t>(segment.begin, i - s.window + 1);
        for (std::int64_t j = first; j <= i; ++j) {
          double score = 0;
          for (std::int64_t e = 0; e < s.head_dim; ++e) {
            score += qkv.at(i, h * s.head_dim + e) * qkv.at(j, k_begin + g * s.head_dim + e);
          }
          p.push_back(score * static_cast<double>(s.scale));
          top = std::max(top, p.back());
        }
        for (double& x : p) total += x = std::exp(x - top);
        for (std::size_t j = 0; j < p.size(); ++j) {
          for (std::int64_t e = 0; e < s.head_dim; ++e) {
            o.at(i, h * s.head_dim + e) +=
                p[j] / total * qkv.at(first + static_cast<std::int64_t>(j), v_begin + g * s.head_dim + e);
          }
        }
      }
    }
  }
  return o;
}

void check_attention(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                     std::int64_t window = 0) {
  const AttentionShape shape{heads, kv_heads, head_dim,
                             static_cast<float>(0.8 / std::sqrt(static_cast<double>(head_dim))), window};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t tokens : {1, 7, 129}) {
      SCOPED_TRACE(
          format("{} {} tokens, {} / {} heads of {}", name_of(dtype), tokens, heads, kv_heads, head_dim));
      Rng rng(8, "attention");
      const Batch batch = odd_batch(tokens, 5, rng);
      OpCase op;
      op.inputs = {Doubles(tokens, (heads + 2 * kv_heads) * head_dim).fill_normal(rng, dtype)};
      op.reference = [&](const auto& x, const auto&) {
        return std::vector<Doubles>{reference_attention(x[0], batch.segments(), shape)};
      };
      op.run = [&](Context& context, std::vector<Value> x, const std::vector<Weight*>&) {
        return std::vector<Value>{attention(context, x[0], batch, shape)};
      };
      op.f32_error = 2e-5;
      op.bf16_error = 3e-2;
      check_op(op, dtype);
    }
  }
}
TEST(Attention, OneHead) {
  check_attention(1, 1, 1);
  check_attention(1, 1, 3);
}
TEST(Attention, SeveralHeads) {
  check_attention(2, 2, 17);
}
TEST(Attention, GroupedQueries) {
  check_attention(4, 2, 17);
  check_attention(3, 1, 65);
}

TEST(Attention, Window) {
  check_attention(2, 1, 5, 3);
  check_attention(2, 2, 8, 64);
}

void check_cached(std::int64_t window) {
  const AttentionShape shape{4, 2, 16, 0.25f, window};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    OpContext env(dtype, 2, false);
    Rng rng(2, "cache");
    const Doubles qkv = Doubles(9, 128).fill_normal(rng, dtype);
    const Segments whole(std::vector<std::int32_t>{9}, std::vector<std::int64_t>{0}, 9);
    const Doubles want = reference_attention(qkv, whole, shape);
    KvCache cache(env.context, 2, 32, 9);
    std::int64_t begin = 0;
    for (const std::int64_t count : {4, 1, 3, 1}) {  // a prompt, single tokens and a longer continuation
      Doubles part(count, 128), expected(count, 64);
      for (std::int64_t i = 0; i < count * 128; ++i)
        part.values[static_cast<std::size_t>(i)] = qkv.values[static_cast<std::size_t>(begin * 128 + i)];
      for (std::int64_t i = 0; i < count * 64; ++i)
        expected.values[static_cast<std::size_t>(i)] = want.values[static_cast<std::size_t>(begin * 64 + i)];
      const std::int32_t length[] = {static_cast<std::int32_t>(count)},
                         first[] = {static_cast<std::int32_t>(begin)};
      const std::int64_t sample[] = {0};
      const auto n = static_cast<std::size_t>(count);
      const Batch batch(std::vector<std::int32_t>(n), std::vector<std::int32_t>(n, kIgnoreLabel),
                        std::vector<float>(n), Segments(length, sample, length[0], first));
      for (std::int64_t layer = 0; layer < 2; ++layer) {
        const Value o = attention(env.context, {env.tensor(part)}, batch, shape, &cache, layer);
        EXPECT_FALSE(o.wants_gradient());
        expect_close(doubles_of(o.data.view()), expected, dtype == DType::f32 ? 1e-5 : 2e-2, "cached");
      }
      cache.advance(count);
      begin += count;
    }
    EXPECT_EQ(cache.length(), 9);
  }
}
TEST(Attention, CachedContinuationEqualsTheWhole) {
  check_cached(0);
  check_cached(3);
}

TEST(Attention, RefusesABatchThatDoesNotContinueTheCache) {
  OpContext env(DType::f32, 1, false);
  KvCache cache(env.context, 1, 4, 8);
  const auto run = [&](std::int32_t position) {
    const std::int32_t length[] = {1}, first[] = {position};
    const std::int64_t sample[] = {0};
    const Batch batch({1}, {0}, {1}, Segments(length, sample, 1, first));
    attention(env.context, {env.tensor(Doubles(1, 12))}, batch, {1, 1, 4, 1}, &cache);
    cache.advance(1);
  };
  EXPECT_THROW(run(1), Error);
  run(0);
  EXPECT_THROW(run(0), Error);
  run(1);
  const Batch two({1, 1}, {0, 0}, {1, 1},
                  Segments(std::vector<std::int32_t>{1, 1}, std::vector<std::int64_t>{0, 1}, 2));
  EXPECT_THROW(attention(env.context, {env.tensor(Doubles(2, 12))}, two, {1, 1, 4, 1}, &cache), Error);
}

TEST(Attention, RefusesWrongShapes) {
  OpContext env;
  const Batch batch({1}, {0}, {1}, Segments(std::vector<std::int32_t>{1}, std::vector<std::int64_t>{0}, 1));
  EXPECT_THROW(attention(env.context, {env.tensor(Doubles(1, 9))}, batch, {1, 1, 4, 1}), Error);
  EXPECT_THROW(attention(env.context, {env.tensor(Doubles(2, 12))}, batch, {1, 1, 4, 1}), Error);
  EXPECT_THROW(attention(env.context, {env.tensor(Doubles(1, 28))}, batch, {3, 2, 4, 1}), Error);
}

TEST(Attention, FlopsAreHalfASquareTwice) {
  const Segments segments(std::vector<std::int32_t>{10, 4}, std::vector<std::int64_t>{0, 1}, 20);
  EXPECT_EQ(attention_forward_flops(segments, {3, 1, 8, 1}), 2.0 * (100 + 16) * 24);
  EXPECT_EQ(attention_forward_flops(segments, {3, 1, 8, 1, 6}), 2.0 * (100 - 16 + 16) * 24);
  EXPECT_EQ(attention_forward_flops(segments, {3, 1, 8, 1, 10}), 2.0 * (100 + 16) * 24);
}

}  // namespace
}  // namespace lode::test
