#include "ops/embedding.h"

#include "ops/op_test.h"
#include "temp_folder.h"

namespace lode::test {
namespace {

void check_embedding(bool with_positions, float scale = 1) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t tokens : {1, 7, 129}) {
      for (const std::int64_t channels : {1, 3, 17, 65}) {
        SCOPED_TRACE(format("{} [{}, {}]", name_of(dtype), tokens, channels));
        Rng rng(8, "embedding");
        const Batch batch = odd_batch(tokens, 5, rng);
        OpCase op;
        op.weights = {Doubles(5, channels).fill_normal(rng, dtype)};
        if (with_positions) op.weights.push_back(Doubles(129, channels).fill_normal(rng, dtype));
        op.reference = [&](const auto&, const auto& w) {
          Doubles y(tokens, channels);
          for (std::int64_t t = 0; t < tokens; ++t) {
            const auto at = static_cast<std::size_t>(t);
            for (std::int64_t c = 0; c < channels; ++c) {
              y.at(t, c) = static_cast<double>(scale) * w[0].at(batch.tokens()[at], c);
              if (with_positions) y.at(t, c) += w[1].at(batch.segments().positions()[at], c);
            }
          }
          return std::vector<Doubles>{y};
        };
        op.run = [&](Context& context, std::vector<Value>, const std::vector<Weight*>& w) {
          return std::vector<Value>{embedding(context, batch, *w[0], with_positions ? w[1] : nullptr, scale)};
        };
        check_op(op, dtype);
      }
    }
  }
}
TEST(Embedding, Tokens) {
  check_embedding(false);
}
TEST(Embedding, TokensAndPositions) {
  check_embedding(true);
}

TEST(Embedding, Scaled) {
  check_embedding(false, 5.65f);
}

TEST(Embedding, RefusesIdsOutsideTheTable) {
  OpContext env;
  FakeWeight table(env.memory, Doubles(5, 2)), positions(env.memory, Doubles(2, 2));
  const Segments segments(std::vector<std::int32_t>{3}, std::vector<std::int64_t>{0}, 3);
  for (const std::int32_t bad : {5, -1}) {
    const Batch batch({0, bad, 1}, {0, 0, 0}, {1, 1, 1}, segments);
    const std::string message = error_of([&] { embedding(env.context, batch, table, nullptr); });
    EXPECT_NE(message.find(format("token id {} is outside the model's vocabulary of 5", bad)),
              std::string::npos)
        << message;
  }
  const Batch batch({0, 1, 1}, {0, 0, 0}, {1, 1, 1}, segments);
  const std::string message = error_of([&] { embedding(env.context, batch, table, &positions); });
  EXPECT_NE(message.find("a sample of 3 tokens is longer than the model's 2 positions"), std::string::npos)
      << message;
}

}  // namespace
}  // namespace lode::test
