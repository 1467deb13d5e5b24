// SGD and Lion.
#include "optim/reference_test.h"

namespace lode::test {
namespace {

TEST(Sgd, TenStepsEqualTorch) {
  expect_reference("sgd", "plain", SgdOptions{.weight_decay = Problem::kDecay});
  expect_reference("sgd", "momentum",
                   SgdOptions{.momentum = 0.9, .dampening = 0.1, .weight_decay = Problem::kDecay});
  expect_reference("sgd", "nesterov",
                   SgdOptions{.momentum = 0.9, .weight_decay = Problem::kDecay, .nesterov = true});
}

TEST(Sgd, Exactness) {
  expect_exactness(SgdOptions{});
  expect_exactness(SgdOptions{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true});
}

TEST(Sgd, StateIsTheMomentumAlone) {
  Problem plain, heavy;
  for (Problem* p : {&plain, &heavy}) p->add("w.weight", 3, 5);
  plain.start(SgdOptions{});
  heavy.start(SgdOptions{.momentum = 0.9});
  EXPECT_EQ(plain.updater->state_bytes(), 0u);
  EXPECT_EQ(heavy.updater->state_bytes(), 3u * 5 * 4);
  EXPECT_EQ(heavy.updater->state_names(0), std::vector<std::string>{"momentum_buffer"});
}

TEST(Sgd, RefusesNesterovWithoutMomentum) {
  EXPECT_THROW(make_optimizer(SgdOptions{.nesterov = true}), Error);
  EXPECT_THROW(make_optimizer(SgdOptions{.momentum = 0.9, .dampening = 0.1, .nesterov = true}), Error);
}

TEST(Lion, TenStepsEqualTheReference) {
  expect_reference("lion", "lion", LionOptions{.weight_decay = Problem::kDecay});
}

TEST(Lion, Exactness) {
  expect_exactness(LionOptions{.weight_decay = 0.1});
}

// sign(0) = 0: without decay an entry whose gradient was always 0 stays, all others move by the rate.
TEST(Lion, MovesByTheRateOrNotAtAll) {
  Problem problem;
  problem.add("w.weight", 1, 21);
  problem.start(LionOptions{});
  const Parameter& p = problem.list.all()[0];
  const auto before = values_of(p.values());
  p.storage->gradient()->adding(problem.context);
  for (std::int64_t c = 0; c < 21; ++c)
    p.gradient().row<float>(0)[c] = static_cast<float>(c % 3 - 1) * 1e-20f;
  problem.updater->step(problem.context, 0.125, 1, {});
  const auto after = values_of(p.values());
  for (std::size_t c = 0; c < 21; ++c)
    EXPECT_FLOAT_EQ(after[c], before[c] - 0.125f * static_cast<float>(static_cast<int>(c % 3) - 1));
}

}  // namespace
}  // namespace lode::test
