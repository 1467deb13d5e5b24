#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/file.h"
#include "core/json.h"
#include "models/fill_rule.h"
#include "optim/optimizers.h"

namespace lode::test {
namespace {

struct AdamWTest : testing::Test {
  Memory memory;
  Facts facts;
  Workspace workspace{memory};
  Context context{.memory = memory, .facts = facts, .kernel = {1, &workspace}};
  ParameterList list{memory, true};

  // A gradient for the next step.
  void set_gradient(const Parameter& p, const std::vector<double>& values) {
    p.storage->gradient()->adding(context);
    copy(values, p.gradient());
  }
  static void copy(const std::vector<double>& values, View to) {
    ASSERT_EQ(static_cast<std::int64_t>(values.size()), to.numel());
    for (std::int64_t i = 0; i < to.numel(); ++i) {
      to.row<float>(i / to.cols)[i % to.cols] = static_cast<float>(values[static_cast<std::size_t>(i)]);
    }
  }
  static float at(View v, std::int64_t i) { return v.row<float>(i / v.cols)[i % v.cols]; }
};

// Two steps of torch.optim.AdamW in f64.
TEST_F(AdamWTest, GoldenSteps) {
  list.add({{.name = "p", .rows = 2, .cols = 3}});
  list.allocate_gradients();
  const Parameter& p = list.all()[0];
  copy({0.5, -1, 2, 1.5, -0.25, 0.75}, p.values());
  ParameterUpdater updater(context, list, make_adamw({.weight_decay = 0.1}));
  set_gradient(p, {.1, -.2, .3, -.4, .5, -.6});
  updater.step(context, 1e-2, 1, {});
  set_gradient(p, {.05, .1, -.15, .2, -.25, .3});
  updater.step(context, 1e-2, 1, {});
  EXPECT_EQ(updater.time(), 2);
  const double want[] = {.479688706, -.985347630, 1.983348630, 1.509654870, -.262153620, .761154120};
  for (std::int64_t i = 0; i < 6; ++i) EXPECT_NEAR(at(p.values(), i), want[i], 2.4e-7) << i;
}

// With a constant gradient and no decay every step is the learning rate.
TEST_F(AdamWTest, ConstantGradientMovesByTheLearningRate) {
  list.add({{.name = "p", .rows = 1, .cols = 4}});
  list.allocate_gradients();
  const Parameter& p = list.all()[0];
  copy({0, 0, 0, 0}, p.values());
  ParameterUpdater updater(context, list, make_adamw({.eps = 0}));
  for (int step = 1; step <= 20; ++step) {
    set_gradient(p, {1e-3, -7, 1e3, 1e-6});
    updater.step(context, 1e-2, 1, {});
    const double signs[] = {-1, 1, -1, -1};
    for (std::int64_t i = 0; i < 4; ++i) EXPECT_NEAR(at(p.values(), i), signs[i] * 1e-2 * step, 1e-6 * step);
  }
}

// tools/model_fixtures/make_optimizer_fixture.py: clipping, a rate for each step, decay of one of two
// parameters.
TEST_F(AdamWTest, TenStepsEqualTorch) {
  const std::string path = LODE_TEST_DIR "/optim/fixtures/adamw.json";
  const Json fixture = parse_json(real_files().read(path), path);
  list.add({{.name = "weight", .rows = 3, .cols = 5}});
  list.add({{.name = "bias", .cols = 5, .vector = true, .decay = false}});
  list.allocate_gradients();
  const auto stream = [](const std::string& name, std::int64_t count) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(fill_uniform(name, i));
    return values;
  };
  for (const Parameter& p : list.all()) copy(stream(p.name, p.numel()), p.values());
  ParameterUpdater updater(context, list, make_adamw({.beta2 = 0.95, .weight_decay = 0.1}));
  for (int step = 0; step < 10; ++step) {
    for (const Parameter& p : list.all()) set_gradient(p, stream(format("{}/{}", p.name, step), p.numel()));
    const double norm = gradient_norm(context, list);
    EXPECT_NEAR(norm, fixture.at("norms").as_array()[static_cast<std::size_t>(step)].as_double(),
                1e-6 * norm);
    updater.step(context, 0.01 * (step + 1) / 10, clip_factor(norm, 1.5), {});
  }
  EXPECT_EQ(updater.state_names(0), (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
  double largest = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    const Parameter& p = list.all()[i];
    const auto& state = updater.states()[i];
    const auto expect = [&](const std::string& key, View got) {
      const Json& want = fixture.at(p.name + "." + key);
      ASSERT_EQ(static_cast<std::int64_t>(want.size()), got.numel());
      for (std::int64_t k = 0; k < got.numel(); ++k) {
        const double value = want.as_array()[static_cast<std::size_t>(k)].as_double();
        EXPECT_NEAR(at(got, k), value, 5e-7) << p.name << "." << key << k;
        largest = std::max(largest, std::abs(at(got, k) - value));
      }
    };
    expect("value", p.values());
    expect("exp_avg", state[0].view());
    expect("exp_avg_sq", state[1].view());
  }
  RecordProperty("largest_difference", format("{:.1e}", largest));
}

TEST_F(AdamWTest, ZeroGradientDecaysMatricesAndLeavesVectorsAlone) {
  list.add({{.name = "w", .rows = 2, .cols = 2}});
  list.add({{.name = "norm.weight", .cols = 3, .vector = true, .init = {InitKind::ones}, .decay = false}});
  list.allocate_gradients();
  for (const Parameter& p : list.all()) {
    copy(std::vector<double>(static_cast<std::size_t>(p.numel()), 2.0), p.values());
    set_gradient(p, std::vector<double>(static_cast<std::size_t>(p.numel()), 0.0));
  }
  ParameterUpdater updater(context, list, make_adamw({.weight_decay = 0.1}));
  updater.step(context, 0.5, 1, {});
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(at(list.all()[0].values(), i), 2 * (1 - 0.5 * 0.1));
  for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(at(list.all()[1].values(), i), 2.0f);
}

// Parts of a shared storage have states of their own; before_update is told each parameter before it changes.
TEST_F(AdamWTest, RefreshesTheBf16CopyAndAnnouncesUpdates) {
  Weight* weight = list.add({{.name = "q", .rows = 2, .cols = 3}, {.name = "k", .rows = 1, .cols = 3}});
  list.allocate_gradients();
  for (const Parameter& p : list.all()) {
    copy(std::vector<double>(static_cast<std::size_t>(p.numel()), 1.0), p.values());
    std::vector<double> gradient;
    for (std::int64_t i = 0; i < p.numel(); ++i) gradient.push_back(fill_uniform(p.name, i));
    set_gradient(p, gradient);
  }
  weight->acquire(context, DType::bf16);
  ParameterUpdater updater(context, list, make_adamw({}));
  std::vector<std::size_t> announced;
  updater.step(context, 0.01, 1, [&](std::size_t i) {
    EXPECT_EQ(at(list.all()[i].values(), 0), 1.0f) << "told too late";
    announced.push_back(i);
  });
  EXPECT_EQ(announced, (std::vector<std::size_t>{0, 1}));
  const View written = list.all()[0].storage->bf16_copy().view();
  for (std::int64_t r = 0; r < 3; ++r) {
    for (std::int64_t c = 0; c < 3; ++c) {
      const float master = weight->acquire(context, DType::f32).row<float>(r)[c];
      EXPECT_NE(master, 1.0f);
      EXPECT_EQ(written.row<bf16>(r)[c].bits, to_bf16(master).bits);
    }
  }
  // It counts as fresh: acquiring it does not convert again.
  written.row<bf16>(0)[0] = to_bf16(64);
  EXPECT_EQ(to_f32(weight->acquire(context, DType::bf16).row<bf16>(0)[0]), 64);
}

TEST_F(AdamWTest, ThreadsDoNotMatter) {
  const auto run = [&](int threads) {
    ParameterList own(memory, true);
    own.add({{.name = "w", .rows = 129, .cols = 257}});
    own.allocate_gradients();
    const Parameter& p = own.all()[0];
    context.kernel.threads = threads;
    initialise(context, p, 1);
    own.storages()[0]->gradient()->adding(context);
    for (std::int64_t r = 0; r < p.rows; ++r) {
      for (std::int64_t c = 0; c < p.cols; ++c)
        p.gradient().row<float>(r)[c] = static_cast<float>(fill_uniform("g", r * p.cols + c));
    }
    ParameterUpdater updater(context, own, make_adamw({.weight_decay = 0.1}));
    const double norm = gradient_norm(context, own);
    updater.step(context, 0.1, clip_factor(norm, 1), {});
    std::vector<double> out = {norm};
    for (std::int64_t r = 0; r < p.rows; ++r)
      out.insert(out.end(), p.values().row<float>(r), p.values().row<float>(r) + p.cols);
    return out;
  };
  EXPECT_EQ(run(1), run(2));
}

TEST_F(AdamWTest, FrozenParametersStay) {
  ParameterList frozen(memory, false);
  frozen.add({{.name = "w", .rows = 1, .cols = 1}});
  copy({3}, frozen.all()[0].values());
  ParameterUpdater updater(context, frozen, make_adamw({.weight_decay = 0.1}));
  EXPECT_TRUE(updater.states()[0].empty());
  updater.step(context, 1, 1, [](std::size_t) { FAIL(); });
  EXPECT_EQ(at(frozen.all()[0].values(), 0), 3.0f);
  EXPECT_EQ(gradient_norm(context, frozen), 0);
}

TEST(Clipping, Factor) {
  EXPECT_EQ(clip_factor(0.5, 1), 1.0f);
  EXPECT_EQ(clip_factor(0, 1), 1.0f);
  EXPECT_FLOAT_EQ(clip_factor(4, 1), static_cast<float>(1 / 4.000001));
  EXPECT_LT(clip_factor(1, 1), 1.0f) << "as torch: 1 / (1 + 1e-6)";
  EXPECT_EQ(clip_factor(4, 0), 1.0f);
  EXPECT_EQ(clip_factor(4, -1), 1.0f);
}

}  // namespace
}  // namespace lode::test
