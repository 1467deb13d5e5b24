#include "autograd/profile.h"

#include <gtest/gtest.h>

#include "autograd/tape.h"
#include "core/json.h"

namespace lode {
namespace {

TEST(Profile, FloorIsTheLargerOfProductsAndTraffic) {
  const OpCost cost{.seconds = 1, .calls = 1, .flops = 4e9, .bytes = 1e9};
  EXPECT_DOUBLE_EQ(floor_seconds(cost, 2, 4), 2);
  EXPECT_DOUBLE_EQ(floor_seconds(cost, 100, 4), 0.25);
  EXPECT_DOUBLE_EQ(floor_seconds(cost, 0, 0), 0);  // nothing was measured
}

TEST(Profile, SumsByOpAndKeepsEventsOnlyWhenAsked) {
  for (const bool keep : {false, true}) {
    Profile profile(keep);
    const auto now = Profile::Clock::now();
    profile.add("norm", "layers.0", now, {.seconds = 1, .calls = 1, .bytes = 3});
    profile.add("norm", "layers.1", now, {.seconds = 2, .calls = 1, .bytes = 4});
    profile.add_span("step 1", now, 3);
    ASSERT_EQ(profile.ops().size(), 1u);
    const OpCost& sum = profile.ops().at("norm");
    EXPECT_EQ(sum.seconds, 3);
    EXPECT_EQ(sum.calls, 2);
    EXPECT_EQ(sum.bytes, 7);
    EXPECT_EQ(profile.events().size(), keep ? 3u : 0u);
    profile.clear();
    EXPECT_TRUE(profile.ops().empty());
    EXPECT_TRUE(profile.events().empty());
  }
}

TEST(Profile, TraceHasAnEventForEveryOpWithItsPlace) {
  Memory memory;
  Facts facts;
  Workspace workspace(memory);
  Context context{.memory = memory, .facts = facts, .kernel = {1, &workspace}};
  Profile profile(true);
  context.profile = &profile;
  Tape tape;
  context.tape = &tape;
  {
    const ScopedName scope(context, "layers.3");
    const OpTimer timer(context, "linear", 2e9, 1e6);
    tape.record(context, "linear", kNoGradient,
                [](Context& c, Tape&) { const OpTimer timer(c, "linear dX", 1e9); });
  }
  profile.add_span("step 1", Profile::Clock::now(), 0.5);
  tape.backward(context);
  EXPECT_EQ(context.scope, "");

  const Json trace = parse_json(chrome_trace(profile.events()), "trace");
  std::vector<Json> ops, spans;
  for (const Json& event : trace.at("traceEvents").as_array()) {
    if (event.at("ph").as_string() != "X") continue;
    (event.at("cat").as_string() == "op" ? ops : spans).push_back(event);
  }
  ASSERT_EQ(ops.size(), 2u);
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0].at("dur").as_double(), 5e5);  // microseconds
  EXPECT_EQ(ops[0].at("name").as_string(), "linear");
  EXPECT_EQ(ops[0].at("args").at("where").as_string(), "layers.3");
  EXPECT_EQ(ops[0].at("args").at("gflop").as_double(), 2);
  EXPECT_EQ(ops[0].at("args").at("mbytes").as_double(), 1);
  EXPECT_EQ(ops[1].at("name").as_string(), "linear dX");
  EXPECT_EQ(ops[1].at("args").at("where").as_string(), "layers.3");
  EXPECT_NE(ops[0].at("tid").as_int(), spans[0].at("tid").as_int());
  EXPECT_GE(ops[1].at("ts").as_double(), ops[0].at("ts").as_double());
}

}  // namespace
}  // namespace lode
