#include "autograd/tape.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "autograd/profile.h"
#include "autograd/weight.h"

namespace lode {
namespace {

struct TapeTest : testing::Test {
  Memory memory;
  Facts facts;
  Workspace workspace{memory};
  Tape tape;
  Context context{.memory = memory, .facts = facts, .kernel = {1, &workspace}};

  TapeTest() { context.tape = &tape; }
  Tensor filled(float value, std::int64_t rows = 1, std::int64_t cols = 3) {
    Tensor out = context.activation(rows, cols);
    for (std::int64_t r = 0; r < rows; ++r) std::fill_n(out.view().row<float>(r), cols, value);
    return out;
  }
  Value leaf() { return make_value(context, filled(0), true); }
  std::size_t activations() const {
    return memory.use().current[static_cast<std::size_t>(MemoryTag::activations)];
  }
};

float first(const Tensor& x) {
  return x.view().row<float>(0)[0];
}

TEST_F(TapeTest, RunsInReverseOrder) {
  std::string order;
  for (const char name : {'a', 'b', 'c'}) {
    tape.record(context, "node", kNoGradient, [&order, name](Context&, Tape&) { order += name; });
  }
  EXPECT_EQ(tape.size(), 3u);
  tape.backward(context);
  EXPECT_EQ(order, "cba");
  EXPECT_EQ(tape.size(), 0u);
  tape.backward(context);  // nothing is left to run
  EXPECT_EQ(order, "cba");
}

TEST_F(TapeTest, AddsTheGradientsOfTwoUses) {
  const Value x = leaf();
  float got = 0;
  tape.record(context, "leaf", x.gradient, [&](Context&, Tape& t) { got = first(t.gradient(x.gradient)); });
  for (const float value : {2.0f, 3.0f, 5.0f}) {
    tape.record(context, "use", kNoGradient,
                [&, value](Context& c, Tape& t) { t.add_gradient(c, x.gradient, filled(value)); });
  }
  tape.backward(context);
  EXPECT_EQ(got, 10);
}

TEST_F(TapeTest, SharedTensorsAreNotOverwritten) {
  const Value a = leaf(), b = leaf();
  const Tensor shared = filled(2);
  tape.add_gradient(context, a.gradient, shared);
  tape.add_gradient(context, b.gradient, shared);
  EXPECT_EQ(tape.gradient(a.gradient).storage(), shared.storage());
  tape.add_gradient(context, a.gradient, filled(5));
  EXPECT_EQ(first(tape.gradient(a.gradient)), 7);
  EXPECT_EQ(first(tape.gradient(b.gradient)), 2);
  EXPECT_EQ(first(shared), 2);
  // Its own by now: the next addition works in place.
  const void* const place = tape.gradient(a.gradient).view().data;
  tape.add_gradient(context, a.gradient, filled(1));
  EXPECT_EQ(tape.gradient(a.gradient).view().data, place);
  EXPECT_EQ(first(tape.gradient(a.gradient)), 8);
}

TEST_F(TapeTest, TakingLeavesNothing) {
  const Value a = leaf();
  tape.add_gradient(context, a.gradient, filled(2));
  EXPECT_EQ(first(tape.take_gradient(a.gradient)), 2);
  EXPECT_FALSE(tape.gradient(a.gradient).defined());
}

TEST_F(TapeTest, SkipsNodesWithoutGradientAndDropsUnwantedOnes) {
  const Value reached = leaf(), unreached = leaf();
  int runs = 0;
  tape.record(context, "unreached", unreached.gradient, [&](Context&, Tape&) { runs += 100; });
  tape.record(context, "reached", reached.gradient, [&](Context& c, Tape& t) {
    ++runs;
    t.add_gradient(c, kNoGradient, filled(1));
  });
  tape.add_gradient(context, reached.gradient, filled(1));
  tape.backward(context);
  EXPECT_EQ(runs, 1);
}

TEST_F(TapeTest, RefusesGradientsOfAnotherShape) {
  const Value a = leaf();
  tape.add_gradient(context, a.gradient, filled(1, 1, 3));
  EXPECT_THROW(tape.add_gradient(context, a.gradient, filled(1, 3, 1)), Error);
}

TEST_F(TapeTest, ValuesHaveGradientsOnlyWhenWantedAndRecorded) {
  EXPECT_FALSE(make_value(context, filled(0), false).wants_gradient());
  EXPECT_TRUE(make_value(context, filled(0), true).wants_gradient());
  context.tape = nullptr;
  EXPECT_FALSE(make_value(context, filled(0), true).wants_gradient());
}

TEST_F(TapeTest, FreesWhatNodesSavedAsItGoes) {
  constexpr std::int64_t kRows = 512, kCols = 512;  // 1 MiB
  const std::size_t before = activations();
  std::vector<std::size_t> levels;
  for (int i = 0; i < 4; ++i) {
    tape.record(context, "node", kNoGradient, [&, saved = Saved(filled(1, kRows, kCols))](Context&, Tape&) {
      EXPECT_EQ(first(saved.get(context)), 1);
      levels.push_back(activations());
    });
  }
  EXPECT_GE(activations(), before + (std::size_t{4} << 20));
  tape.backward(context);
  ASSERT_EQ(levels.size(), 4u);
  for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(levels[i - 1] - levels[i], std::size_t{1} << 20);
  EXPECT_EQ(activations(), before);
}

TEST_F(TapeTest, ClearForgetsNodesAndGradients) {
  const std::size_t before = activations();
  {
    const Value a = leaf();
    tape.add_gradient(context, a.gradient, filled(1));
    tape.record(context, "node", a.gradient, [saved = Saved(a.data)](Context&, Tape&) { FAIL(); });
  }
  tape.clear();
  EXPECT_EQ(activations(), before);
  tape.backward(context);
}

TEST_F(TapeTest, BackwardRecordsNothingAndRestoresTheContext) {
  context.scope = "outer";
  tape.record(context, "node", kNoGradient, [&](Context& c, Tape&) {
    EXPECT_EQ(c.tape, nullptr);
    c.scope = "changed";
  });
  tape.backward(context);
  EXPECT_EQ(context.tape, &tape);
  EXPECT_EQ(context.scope, "outer");
}

TEST_F(TapeTest, AnErrorInBackwardRestoresTheContext) {
  context.scope = "outer";
  tape.record(context, "node", kNoGradient, [](Context&, Tape&) { fail(ErrorKind::memory, "full"); });
  EXPECT_THROW(tape.backward(context), Error);
  EXPECT_EQ(context.tape, &tape);
  EXPECT_EQ(context.scope, "outer");
}

TEST_F(TapeTest, NonFiniteSearchNamesTheFirstOpAndScope) {
  NonFinite bad;
  context.search = &bad;
  Tensor x = filled(1, 4, 3);
  {
    const ScopedName layer(context, "layers.1");
    const ScopedName part(context, "mlp");
    inspect(context, "linear", x);
    EXPECT_FALSE(bad.found);
    x.view().row<float>(2)[1] = std::numeric_limits<float>::infinity();
    inspect(context, "linear", x);
  }
  x.view().row<float>(0)[0] = std::nanf("");
  inspect(context, "later", x);
  EXPECT_TRUE(bad.found);
  EXPECT_EQ(bad.where, "layers.1.mlp: linear");
  EXPECT_EQ(bad.row, 2);
  EXPECT_EQ(bad.col, 1);
}

TEST_F(TapeTest, NonFiniteSearchLooksAtGradients) {
  NonFinite bad;
  const Value a = leaf(), b = leaf();
  const auto pass = [](const char* scope, const char* op, TapeTest& t, GradientId out, GradientId in) {
    const ScopedName name(t.context, scope);
    t.tape.record(t.context, op, out, [&t, out, in](Context& c, Tape& tape) {
      tape.add_gradient(c, in, t.filled(first(tape.gradient(out)) * std::numeric_limits<float>::max()));
    });
  };
  pass("layers.0", "gelu", *this, a.gradient, kNoGradient);
  pass("layers.1", "norm", *this, b.gradient, a.gradient);
  tape.add_gradient(context, b.gradient, filled(2));
  context.search = &bad;
  tape.backward(context);
  EXPECT_TRUE(bad.found);
  EXPECT_EQ(bad.where, "layers.0: gelu (gradient of its output)");
  EXPECT_EQ(context.scope, "");
}

TEST_F(TapeTest, GradientSinkOverwritesFirstAndThenAdds) {
  GradientSink sink;
  EXPECT_THROW(sink.target(context), Error) << "not allocated";
  sink.allocate(memory, 2, 2);
  EXPECT_TRUE(sink.stale());
  EXPECT_FALSE(sink.target(context).accumulate);
  EXPECT_TRUE(sink.target(context).accumulate);
  sink.tensor().view().row<float>(1)[1] = 5;
  EXPECT_EQ(sink.adding(context).row<float>(1)[1], 5);
  sink.reset();
  EXPECT_EQ(sink.adding(context).row<float>(1)[1], 0) << "zero at the first use in a step";
  EXPECT_FALSE(sink.stale());
}

TEST_F(TapeTest, ProfileAddsUpPerOp) {
  { const OpTimer timer(context, "free"); }
  Profile profile;
  context.profile = &profile;
  for (int i = 0; i < 3; ++i) {
    const OpTimer timer(context, "linear", 10, 4);
  }
  { const OpTimer timer(context, "norm"); }
  ASSERT_EQ(profile.ops().size(), 2u);
  const OpCost& linear = profile.ops().find("linear")->second;
  EXPECT_EQ(linear.calls, 3);
  EXPECT_EQ(linear.flops, 30);
  EXPECT_EQ(linear.bytes, 12);
  EXPECT_GE(linear.seconds, 0);
  profile.clear();
  EXPECT_TRUE(profile.ops().empty());
}

}  // namespace
}  // namespace lode
