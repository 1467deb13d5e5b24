// Adafactor, Adam-mini and AdamW in 8 bits: AdamW with less state.
#include <array>
#include <cmath>

#include "kernels/optimizer.h"
#include "optim/reference_test.h"

namespace lode::test {
namespace {

constexpr double kDecay = Problem::kDecay;

TEST(Adafactor, TenStepsEqualTransformers) {
  expect_reference("adafactor", "fixed", AdafactorOptions{.weight_decay = kDecay});
  expect_reference("adafactor", "momentum", AdafactorOptions{.beta1 = 0.9, .weight_decay = kDecay});
  expect_reference("adafactor", "scaled",
                   AdafactorOptions{.clip_threshold = 0.5, .weight_decay = kDecay, .scale_parameter = true});
  expect_reference("adafactor", "relative",
                   AdafactorOptions{.weight_decay = kDecay, .scale_parameter = true, .relative_step = true});
  expect_reference("adafactor", "warmup",
                   AdafactorOptions{.weight_decay = kDecay, .relative_step = true, .warmup_init = true});
}

TEST(Adafactor, Exactness) {
  expect_exactness(AdafactorOptions{.weight_decay = 0.1});
  expect_exactness(AdafactorOptions{.beta1 = 0.9, .scale_parameter = true, .relative_step = true});
}

TEST(Adafactor, StateIsRowsAndColumns) {
  Problem problem;
  problem.add_standard();
  problem.start(AdafactorOptions{});
  EXPECT_EQ(problem.updater->state_names(0), (std::vector<std::string>{"exp_avg_sq_row", "exp_avg_sq_col"}));
  EXPECT_EQ(problem.updater->states()[0][0].numel(), 7);
  EXPECT_EQ(problem.updater->states()[0][1].numel(), 8);
  EXPECT_EQ(problem.updater->state_names(3), (std::vector<std::string>{"exp_avg_sq"}));
  EXPECT_THROW(make_optimizer(AdafactorOptions{.warmup_init = true}), Error);
}

// The product of the factors is exact for squares of rank one: the first update is the gradient's sign.
TEST(Adafactor, RankOneSquares) {
  Problem problem;
  problem.add("w.weight", 5, 7);
  problem.start(AdafactorOptions{});
  const Parameter& p = problem.list.all()[0];
  const auto before = values_of(p.values());
  p.storage->gradient()->adding(problem.context);
  for (std::int64_t r = 0; r < 5; ++r) {
    for (std::int64_t c = 0; c < 7; ++c)
      p.gradient().row<float>(r)[c] =
          (r + c) % 2 == 0 ? static_cast<float>(r + 1) / (c + 2.0f) : -(r + 1) / (c + 2.0f);
  }
  problem.updater->step(problem.context, 0.1, 1, {});
  const auto after = values_of(p.values());
  for (std::size_t i = 0; i < after.size(); ++i)
    EXPECT_NEAR(after[i] - before[i], (i / 7 + i % 7) % 2 == 0 ? -0.1 : 0.1, 1e-6);
}

const AdamWOptions kAdamW{.beta2 = 0.95, .weight_decay = kDecay};

TEST(AdamMini, TenStepsEqualTheReference) {
  expect_reference("adam_mini", "adam_mini", AdamMiniOptions{.adamw = kAdamW, .head_size = 4});
}

TEST(AdamMini, Exactness) {
  expect_exactness(AdamMiniOptions{.adamw = kAdamW, .head_size = 4});
}

TEST(AdamMini, OneSecondMomentABlock) {
  Problem problem;
  problem.add_standard();
  problem.start(AdamMiniOptions{.adamw = kAdamW, .head_size = 4});
  const std::int64_t blocks[] = {7, 2, 4, 4, 8, 12, 1, 7};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(problem.updater->states()[i][1].numel(), blocks[i]) << i;
}

// Blocks of one element are AdamW.
TEST(AdamMini, ColumnsOfOneAreAdamW) {
  std::vector<std::vector<float>> results;
  for (const OptimizerOptions& options :
       {OptimizerOptions(AdamMiniOptions{.adamw = kAdamW}), OptimizerOptions(kAdamW)}) {
    Problem problem;
    problem.add("w.weight", 9, 1);
    problem.start(options);
    problem.run(0, 10);
    results.push_back(problem.weights()[0]);
  }
  for (std::size_t i = 0; i < 9; ++i) EXPECT_NEAR(results[0][i], results[1][i], 1e-6);
}

struct Problem8bit : Problem {
  explicit Problem8bit(const OptimizerOptions& options, int threads = 1) : Problem(threads) {
    add("model.layers.0.mlp.up_proj.weight", 65, 64);
    add("model.layers.0.mlp.down_proj.weight", 61, 71);
    add("model.layers.0.self_attn.q_proj.weight", 8, 8);
    add_vector("model.norm.weight", 8);
    start(options);
  }
  std::vector<std::uint8_t> codes(std::size_t parameter, std::size_t k) {
    const Tensor& tensor = updater->states()[parameter][k];
    const auto* bytes = static_cast<const std::uint8_t*>(tensor.view().data);
    return {bytes, bytes + list.all()[parameter].numel()};
  }
};

// The state of parameter 1: codes and magnitudes of moment `number` are states `first` and `first` + 1.
void expect_moment(Problem8bit& problem, const Json& want, std::string_view number, std::size_t first,
                   const std::array<float, 256>& map) {
  SCOPED_TRACE(number);
  const auto codes = problem.codes(1, first);
  const Json& expected = want.at("state").at(format("state{}", number));
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(codes[i * 67], static_cast<std::uint8_t>(expected.as_array()[i].as_double())) << i;
  const auto got = values_of(problem.updater->states()[1][first + 1].view());
  const Json& sizes = want.at("state").at(format("absmax{}", number));
  ASSERT_EQ(sizes.size(), got.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], sizes.as_array()[i].as_double(), 2e-6 * std::abs(got[i])) << i;
  const Json& values = want.at("maps").at(format("qmap{}", number));
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(map[i * 5], values.as_array()[i].as_double(), 2e-7 * std::abs(map[i * 5])) << i;
}

TEST(AdamW8bit, TenStepsEqualBitsandbytes) {
  const Json want = read_fixture("adamw_8bit");
  Problem8bit problem(AdamW8bitOptions{.adamw = kAdamW});
  problem.run(0, 10);
  expect_values(want.at("weights"), problem.list, 5e-6, 67);
  expect_moment(problem, want, "1", 0, signed_map_8bit());
  expect_moment(problem, want, "2", 2, unsigned_map_8bit());
}

TEST(Lion8bit, TenStepsEqualBitsandbytes) {
  const Json want = read_fixture("lion_8bit");
  Problem8bit problem(Lion8bitOptions{.lion = {.weight_decay = Problem::kDecay}});
  problem.run(0, 10);
  expect_values(want.at("weights"), problem.list, 5e-6, 67);
  expect_moment(problem, want, "1", 0, signed_map_8bit());
}

TEST(Lion8bit, Exactness) {
  expect_exactness(Lion8bitOptions{.lion = {.weight_decay = 0.1}, .min_8bit_size = 1});
}

TEST(Lion8bit, StateIsAByteAnElement) {
  Problem8bit problem(Lion8bitOptions{});
  EXPECT_EQ(problem.updater->state_names(0), (std::vector<std::string>{"state1", "absmax1"}));
  EXPECT_EQ(problem.updater->state_names(2), std::vector<std::string>{"exp_avg"});
  EXPECT_EQ(problem.updater->states()[0][0].bytes(), 4160u);
  EXPECT_EQ(problem.updater->states()[0][1].bytes(), 17u * 4);
}

TEST(AdamW8bit, Exactness) {
  expect_exactness(AdamW8bitOptions{.adamw = kAdamW});
  expect_exactness(AdamW8bitOptions{.adamw = kAdamW, .min_8bit_size = 1});
}

TEST(AdamW8bit, SmallParametersKeepTheirState) {
  Problem8bit problem(AdamW8bitOptions{.adamw = kAdamW});
  EXPECT_EQ(problem.updater->state_names(0),
            (std::vector<std::string>{"state1", "absmax1", "state2", "absmax2"}));
  EXPECT_EQ(problem.updater->state_names(2), (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(problem.updater->states()[0][0].bytes(), 4160u);
  EXPECT_EQ(problem.updater->states()[0][1].bytes(), 17u * 4);
}

// 300 steps towards a minimum: as near as AdamW comes.
TEST(AdamW8bit, FindsTheMinimumLikeAdamW) {
  std::vector<double> distances;
  for (const OptimizerOptions& options : {OptimizerOptions(AdamW8bitOptions{.adamw = {.beta2 = 0.95}}),
                                          OptimizerOptions(AdamWOptions{.beta2 = 0.95})}) {
    Problem problem;
    problem.add("w.weight", 64, 65);
    problem.start(options);
    const Parameter& p = problem.list.all()[0];
    double distance = 0;
    for (int step = 0; step < 300; ++step) {
      problem.list.reset_gradients();
      p.storage->gradient()->adding(problem.context);
      distance = 0;
      for (std::int64_t i = 0; i < p.numel(); ++i) {
        const double off = p.values().row<float>(0)[i] - fill_uniform("minimum", i);
        distance += off * off;
        p.gradient().row<float>(0)[i] = static_cast<float>(off);
      }
      problem.updater->step(problem.context, 0.01, 1, {});
    }
    distances.push_back(std::sqrt(distance / static_cast<double>(p.numel())));
  }
  EXPECT_LT(distances[1], 0.03);
  EXPECT_LT(std::abs(distances[0] - distances[1]), 0.01);
}

}  // namespace
}  // namespace lode::test
