#include "ops/rotary.h"

#include "ops/op_test.h"

namespace lode::test {
namespace {

constexpr std::int64_t kHeads = 3;

RotaryTable make_table(Memory& memory, std::int64_t rotary_dim) {
  RotaryTable table{rotary_dim, Tensor(memory, MemoryTag::program, DType::f32, 129, rotary_dim / 2),
                    Tensor(memory, MemoryTag::program, DType::f32, 129, rotary_dim / 2)};
  for (std::int64_t p = 0; p < 129; ++p) {
    for (std::int64_t j = 0; j < rotary_dim / 2; ++j) {
      const double angle = static_cast<double>(p) *
                           std::pow(100.0, -2.0 * static_cast<double>(j) / static_cast<double>(rotary_dim));
      table.cos.view().row<float>(p)[j] = static_cast<float>(std::cos(angle));
      table.sin.view().row<float>(p)[j] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

// Heads of `head_dim` channels, the first rotary_dim of which turn; two channels behind the heads stay.
void check_rotary(std::int64_t head_dim, std::int64_t rotary_dim) {
  Memory memory;
  const RotaryTable table = make_table(memory, rotary_dim);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t tokens : {1, 7, 129}) {
      SCOPED_TRACE(
          format("{} {} tokens, heads of {}, {} turn", name_of(dtype), tokens, head_dim, rotary_dim));
      Rng rng(8, "rotary");
      const Batch batch = odd_batch(tokens, 5, rng);
      OpCase op;
      op.inputs = {Doubles(tokens, kHeads * head_dim + 2).fill_normal(rng, dtype)};
      op.reference = [&](const auto& x, const auto&) {
        Doubles y = x[0];
        for (std::int64_t t = 0; t < tokens; ++t) {
          const std::int64_t position = batch.segments().positions()[static_cast<std::size_t>(t)];
          for (std::int64_t h = 0; h < kHeads; ++h) {
            for (std::int64_t j = 0; j < rotary_dim / 2; ++j) {
              const std::int64_t a = h * head_dim + j, b = a + rotary_dim / 2;
              const double cos = table.cos.view().row<float>(position)[j],
                           sin = table.sin.view().row<float>(position)[j];
              y.at(t, a) = x[0].at(t, a) * cos - x[0].at(t, b) * sin;
              y.at(t, b) = x[0].at(t, b) * cos + x[0].at(t, a) * sin;
            }
          }
        }
        return std::vector<Doubles>{y};
      };
      op.run = [&](Context& context, std::vector<Value> x, const std::vector<Weight*>&) {
        return std::vector<Value>{rotary(context, std::move(x[0]), batch, table, kHeads, head_dim)};
      };
      check_op(op, dtype);
    }
  }
}
TEST(Rotary, AllChannels) {
  check_rotary(2, 2);
  check_rotary(64, 64);
}
TEST(Rotary, SomeChannels) {
  check_rotary(17, 6);
}

// With rows of its own a table is not read by position.
TEST(Rotary, TokensReadTheRowsTheyAreGiven) {
  OpContext env(DType::f32, 1, false);
  RotaryTable table = make_table(env.memory, 2);
  const Batch batch({1, 1}, {0, 0}, {1, 1},
                    Segments(std::vector<std::int32_t>{2}, std::vector<std::int64_t>{0}, 2));
  table.rows = {3, 0};
  table.generation = batch.segments().generation();
  Doubles x(2, 2);
  x.at(0, 0) = x.at(1, 0) = 1;
  const Doubles y = doubles_of(rotary(env.context, {env.tensor(x)}, batch, table, 1, 2).data.view());
  EXPECT_FLOAT_EQ(static_cast<float>(y.at(0, 0)), std::cos(3.0f));
  EXPECT_FLOAT_EQ(static_cast<float>(y.at(0, 1)), std::sin(3.0f));
  EXPECT_EQ(y.at(1, 0), 1);
  table.rows = {129, 0};
  EXPECT_THROW(rotary(env.context, {env.tensor(x)}, batch, table, 1, 2), Error);
}

// A gradient that another value shares is not turned in place.
TEST(Rotary, LeavesSharedGradientsAlone) {
  OpContext env;
  const RotaryTable table = make_table(env.memory, 2);
  const Batch batch({1, 1}, {0, 0}, {1, 1},
                    Segments(std::vector<std::int32_t>{2}, std::vector<std::int64_t>{0}, 2));
  Rng rng(9, "shared");
  const Tensor shared = env.tensor(Doubles(2, 2).fill_normal(rng, DType::f32));
  const Doubles before = doubles_of(shared.view());
  const Value y =
      rotary(env.context, make_value(env.context, env.tensor(Doubles(2, 2)), true), batch, table, 1, 2);
  env.tape.add_gradient(env.context, y.gradient, shared);
  env.tape.backward(env.context);
  EXPECT_EQ(doubles_of(shared.view()).values, before.values);
}

TEST(Rotary, RefusesPositionsBeyondTheTable) {
  OpContext env;
  const RotaryTable table = make_table(env.memory, 2);
  const std::int32_t first[] = {128};
  const Batch batch({1, 1}, {0, 0}, {1, 1},
                    Segments(std::vector<std::int32_t>{2}, std::vector<std::int64_t>{0}, 2, first));
  EXPECT_THROW(rotary(env.context, {env.tensor(Doubles(2, 2))}, batch, table, 1, 2), Error);
}

}  // namespace
}  // namespace lode::test
