#include "autograd/recompute.h"

#include <gtest/gtest.h>

#include "kernels/elementwise.h"

namespace lode {
namespace {

struct RecomputeTest : testing::Test {
  Memory memory;
  Facts facts;
  Workspace workspace{memory};
  Tape tape;
  Context context{.memory = memory, .facts = facts, .kernel = {1, &workspace}};
  int runs = 0, again = 0;

  RecomputeTest() { context.tape = &tape; }
  Tensor filled(float value, std::int64_t rows = 1, std::int64_t cols = 3) {
    Tensor out = context.activation(rows, cols);
    for (std::int64_t r = 0; r < rows; ++r) std::fill_n(out.view().row<float>(r), cols, value);
    return out;
  }
  // 2 x, saving a tensor for it.
  Value doubled(Context& c, const Value& x) {
    ++runs;
    Tensor y = c.activation(x.data.rows(), x.data.cols());
    add_rows(DType::f32, c.kernel, x.data.view(), x.data.view(), y.view());
    Value out = make_value(c, y, x.wants_gradient());
    if (!out.wants_gradient()) return out;
    c.tape->record(c, "double", out.gradient,
                   [id = out.gradient, x_id = x.gradient, saved = Saved(y)](Context& k, Tape& t) {
                     const Tensor dy = t.take_gradient(id);
                     EXPECT_EQ(saved.get(k).view().row<float>(0)[0], 8);
                     scopes_seen() = k.scope;
                     Tensor dx = k.activation(dy.rows(), dy.cols());
                     add_rows(DType::f32, k.kernel, dy.view(), dy.view(), dx.view());
                     t.add_gradient(k, x_id, std::move(dx));
                   });
    return out;
  }
  static std::string& scopes_seen() {
    static std::string scope;
    return scope;
  }
  std::vector<Value> later(const Value& x) {
    return recompute_later(
        context, [this](Context& c, const Value& in) { return std::vector<Value>{doubled(c, in)}; }, x,
        [](const Tensor& in) { return Saved(in); }, [this] { ++again; });
  }
};

TEST_F(RecomputeTest, RunsAgainInBackwardAndHasTheSameGradient) {
  const Value x = make_value(context, filled(4), true);
  float got = 0;
  tape.record(context, "leaf", x.gradient,
              [&](Context&, Tape& t) { got = t.gradient(x.gradient).view().row<float>(0)[0]; });
  const std::vector<Value> y = later(x);
  EXPECT_EQ(y[0].data.view().row<float>(0)[0], 8);
  EXPECT_EQ(runs, 1);
  tape.add_gradient(context, y[0].gradient, filled(5));
  tape.backward(context);
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(again, 1);
  EXPECT_EQ(got, 10);
}

TEST_F(RecomputeTest, HoldsItsInputAlone) {
  constexpr std::int64_t kRows = 512, kCols = 512;
  const auto activations = [&] {
    return memory.use().current[static_cast<std::size_t>(MemoryTag::activations)];
  };
  Value x = make_value(context, filled(4, kRows, kCols), true);
  later(x);
  EXPECT_EQ(activations(), std::size_t{1} << 20);
  x.data = Tensor();
  EXPECT_EQ(activations(), std::size_t{1} << 20);
  tape.clear();
  EXPECT_EQ(activations(), 0u);
}

TEST_F(RecomputeTest, WithoutAGradientNothingRunsAgain) {
  const std::vector<Value> frozen = later(make_value(context, filled(4), false));
  EXPECT_FALSE(frozen[0].wants_gradient());
  EXPECT_EQ(tape.size(), 0u);
  later(make_value(context, filled(4), true));  // wanted, but no gradient arrives
  tape.backward(context);
  EXPECT_EQ(again, 0);
  context.tape = nullptr;
  later(make_value(context, filled(4), false));
  EXPECT_EQ(runs, 3);
}

TEST_F(RecomputeTest, RunsAgainWhereItRan) {
  context.scope = "layers.3";
  const Value x = make_value(context, filled(4), true);
  const std::vector<Value> y = later(x);
  context.scope = "outside";
  tape.add_gradient(context, y[0].gradient, filled(5));
  tape.backward(context);
  EXPECT_EQ(scopes_seen(), "layers.3");
  EXPECT_EQ(context.scope, "outside");
}

TEST_F(RecomputeTest, ATensorMadeAgainIsMadeOnceAndFreedWithItsLastUser) {
  int made = 0;
  auto later_tensor = std::make_shared<RecomputedTensor>([&](Context&) {
    ++made;
    return filled(3, 512, 512);
  });
  Value value{filled(3), kNoGradient, later_tensor};
  later_tensor.reset();
  std::vector<Saved> users = {value.saved(context), value.saved(context)};
  value = {};
  EXPECT_EQ(made, 0);
  EXPECT_EQ(users[0].get(context).rows(), 512);
  EXPECT_EQ(users[1].get(context).rows(), 512);
  EXPECT_EQ(made, 1);
  users.pop_back();
  EXPECT_GT(memory.use().total_current, std::size_t{1} << 19);
  users.pop_back();
  EXPECT_LT(memory.use().total_current, std::size_t{1} << 19);
}

}  // namespace
}  // namespace lode
