// Muon, GaLore, APOLLO and BAdam: optimizers that look at whole matrices or layers.
#include <cmath>

#include "kernels/elementwise.h"
#include "optim/projection.h"
#include "optim/reference_test.h"

namespace lode::test {
namespace {

const AdamWOptions kAdamW{.beta2 = 0.95, .weight_decay = Problem::kDecay};

TEST(Muon, TenStepsEqualTorch) {
  expect_reference("muon", "original", MuonOptions{.adamw = kAdamW, .scale = MuonScale::original}, 2e-5);
  expect_reference("muon", "match_rms", MuonOptions{.adamw = kAdamW}, 2e-5);
  expect_reference("muon", "spectral",
                   MuonOptions{.adamw = kAdamW, .nesterov = false, .scale = MuonScale::spectral}, 2e-5);
}

TEST(Muon, Exactness) {
  expect_exactness(MuonOptions{.adamw = kAdamW});
}

TEST(Muon, MatricesOfLinearModulesAlone) {
  Problem problem;
  problem.add_standard();
  problem.start(MuonOptions{});
  const bool muon[] = {false, true, true, false, true, true, false, false};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(problem.updater->states()[i].size(), muon[i] ? 1u : 2u) << i;
}

// The update's singular values are near 1 and its vectors the gradient's: of a diagonal gradient, diagonal.
TEST(Muon, Orthogonalises) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Problem problem;
    problem.context.dtype = dtype;
    problem.add("w.weight", 6, 4);
    problem.start(MuonOptions{.scale = MuonScale::original});
    const Parameter& p = problem.list.all()[0];
    const auto before = values_of(p.values());
    p.storage->gradient()->adding(problem.context);
    for (std::int64_t i = 0; i < 4; ++i) p.gradient().row<float>(i)[i] = i % 2 == 0 ? 1.0f + i : -0.1f;
    problem.updater->step(problem.context, 1, 1, {});
    const auto after = values_of(p.values());
    for (std::size_t i = 0; i < after.size(); ++i) {
      const double change = (before[i] - after[i]) / std::sqrt(1.5);
      if (i / 4 != i % 4) {
        EXPECT_NEAR(change, 0, 1e-6);
      } else {
        EXPECT_NEAR(std::abs(change), 1, 0.33);
        EXPECT_EQ(change > 0, i % 2 == 0);
      }
    }
  }
}

TEST(Muon, ZeroGradientMovesNothing) {
  Problem problem;
  problem.add("w.weight", 3, 4);
  problem.start(MuonOptions{});
  const auto before = problem.weights();
  problem.list.all()[0].storage->gradient()->adding(problem.context);
  problem.updater->step(problem.context, 1, 1, {});
  EXPECT_EQ(problem.weights(), before);
}

Tensor stream_matrix(Problem& problem, const std::string& name, std::int64_t rows, std::int64_t cols,
                     DType dtype = DType::f32) {
  Tensor values = scratch(problem.context, rows, cols);
  copy_values(stream_of(name, rows * cols), values.view());
  Tensor out = scratch(problem.context, rows, cols, dtype);
  convert(problem.context.kernel, values.view(), out.view());
  return out;
}

// Half of a symmetric product, mirrored, is the product, with the same bits for any number of threads.
TEST(Products, SymmetricHalfIsMirrored) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t size : {1, 100, 193, 500}) {
      std::vector<std::vector<float>> found;
      for (const int threads : {1, 3}) {
        Problem problem(threads);
        const Tensor x = stream_matrix(problem, "x", size, 70, dtype);
        Tensor all = scratch(problem.context, size, size), half = scratch(problem.context, size, size);
        multiply(problem.context, {.a = x.view(), .b = x.view(), .transpose_b = true, .c = all.view()});
        multiply_symmetric(problem.context,
                           {.a = x.view(), .b = x.view(), .transpose_b = true, .c = half.view()});
        for (std::int64_t r = 0; r < size; ++r) {
          for (std::int64_t c = 0; c < size; ++c) {
            ASSERT_NEAR(half.view().row<float>(r)[c], all.view().row<float>(r)[c], 2e-5) << r << " " << c;
            ASSERT_EQ(half.view().row<float>(r)[c], half.view().row<float>(c)[r]);
          }
        }
        found.push_back(values_of(half.view()));
      }
      EXPECT_EQ(found[0], found[1]);
    }
  }
}

TEST(Products, RunPrecisionRoundsOperands) {
  for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{500, 40}, {40, 500}}) {
    std::vector<std::vector<float>> found;
    for (const int threads : {1, 3}) {
      Problem problem(threads);
      problem.context.dtype = DType::bf16;
      const Tensor a = stream_matrix(problem, "a", rows, 90), b = stream_matrix(problem, "b", cols, 90);
      Tensor exact = scratch(problem.context, rows, cols), rounded = scratch(problem.context, rows, cols);
      const MatMul product{.a = a.view(), .b = b.view(), .transpose_b = true, .c = exact.view()};
      multiply(problem.context, product);
      MatMul other = product;
      other.c = rounded.view();
      multiply_in_run_precision(problem.context, other);
      for (std::int64_t i = 0; i < rows * cols; ++i)
        ASSERT_NEAR(rounded.view().row<float>(0)[i], exact.view().row<float>(0)[i], 0.1) << i;
      found.push_back(values_of(rounded.view()));
    }
    EXPECT_EQ(found[0], found[1]);
  }
}

GaloreOptions galore(ProjectedSide side) {
  return {.adamw = kAdamW, .rank = 3, .update_interval = 4, .side = side};
}

TEST(Galore, TenStepsEqualTheReference) {
  expect_reference("galore", "standard", galore(ProjectedSide::standard), 1e-5);
  expect_reference("galore", "reverse", galore(ProjectedSide::reverse_standard), 1e-5);
  expect_reference("galore", "left", galore(ProjectedSide::left), 1e-5);
  expect_reference("galore", "right", galore(ProjectedSide::right), 1e-5);
}

TEST(Galore, Exactness) {
  GaloreOptions options = galore(ProjectedSide::standard);
  expect_exactness(options);
  options.state_8bit = true;
  expect_exactness(options);
}

TEST(Galore, StateOfTheProjectedSpace) {
  Problem problem;
  problem.add_standard();
  GaloreOptions options = galore(ProjectedSide::standard);
  options.targets = {"mlp.down_proj", "up_proj"};
  problem.start(options);
  const auto& states = problem.updater->states();
  EXPECT_EQ(states[1].size(), 2u) << "q_proj is no target";
  ASSERT_EQ(states[4].size(), 3u);
  EXPECT_EQ(states[4][0].rows(), 3);
  EXPECT_EQ(states[4][0].cols(), 12);
  EXPECT_EQ(states[4][2].rows(), 3);
  EXPECT_EQ(states[4][2].cols(), 8);
  EXPECT_EQ(states[5][0].rows(), 12);
  EXPECT_EQ(states[5][0].cols(), 3);
  EXPECT_EQ(problem.updater->state_names(5),
            (std::vector<std::string>{"exp_avg", "exp_avg_sq", "projector"}));
}

// Moments in 8 bits follow those in f32.
TEST(Galore, EightBitsAreNear) {
  std::vector<std::vector<std::vector<float>>> results;
  for (const bool state_8bit : {false, true}) {
    Problem problem;
    problem.add("w.weight", 64, 80);
    GaloreOptions options = galore(ProjectedSide::standard);
    options.rank = 8;
    options.state_8bit = state_8bit;
    problem.start(options);
    problem.run(0, 10);
    results.push_back(problem.weights());
  }
  double difference = 0, change = 0;
  for (std::size_t i = 0; i < results[0][0].size(); ++i) {
    difference += std::pow(results[0][0][i] - results[1][0][i], 2);
    change += std::pow(results[0][0][i] - fill_uniform("w.weight", static_cast<std::int64_t>(i)) * 1.0, 2);
  }
  EXPECT_GT(difference, 0);
  EXPECT_LT(difference, 0.01 * change);
}

// A matrix of known singular vectors: both ways find them, cold and warm.
TEST(Galore, SubspaceOfALargeMatrix) {
  Problem problem;
  Context& context = problem.context;
  const std::int64_t rows = 150, cols = 100, rank = 5;
  // Rows of `right` and columns of `left` made orthonormal by the exact search.
  const auto orthonormal = [&](std::int64_t side) {
    Parameter square{.name = "s", .rows = side, .cols = side};
    Tensor noise = scratch(context, side, side), vectors = scratch(context, rank, side);
    copy_values(stream_of("noise", side * side), noise.view());
    find_subspace(context, noise.view(), Projection(square, ProjectedSide::right, rank), {.exact = true},
                  vectors.view());
    return vectors;
  };
  const Tensor left = orthonormal(rows), right = orthonormal(cols);
  Tensor scaled = scratch(context, rank, rows), g = scratch(context, rows, cols);
  for (std::int64_t k = 0; k < rank; ++k) {
    for (std::int64_t r = 0; r < rows; ++r)
      scaled.view().row<float>(k)[r] = left.view().row<float>(k)[r] * static_cast<float>(std::pow(2.0, -k));
  }
  multiply(context, {.a = scaled.view(), .b = right.view(), .transpose_a = true, .c = g.view()});
  Parameter parameter{.name = "w", .rows = rows, .cols = cols};
  const Projection projection(parameter, ProjectedSide::standard, rank);
  EXPECT_TRUE(projection.right);
  Tensor found = scratch(context, rank, cols);
  for (const auto& options : {SubspaceOptions{.exact = true}, SubspaceOptions{.key = make_key(1, "a")},
                              SubspaceOptions{.warm = true}}) {
    find_subspace(context, g.view(), projection, options, found.view());
    for (std::int64_t k = 0; k < rank; ++k) {
      for (std::int64_t c = 0; c < cols; ++c)
        EXPECT_NEAR(found.view().row<float>(k)[c], right.view().row<float>(k)[c], 1e-4) << k << " " << c;
    }
  }
}

ApolloOptions apollo(std::int64_t rank, double scale, ApolloScale type, bool front, bool limit) {
  ApolloOptions options{
      .adamw = kAdamW, .rank = rank, .update_interval = 4, .scale = scale, .scale_type = type};
  options.adamw.eps = 1e-6;
  options.scale_front = front;
  options.limit_growth = limit;
  options.draw = [](const std::string& name, std::int64_t refresh, View projector) {
    auto values = stream_of(format("{}/projector{}", name, refresh), projector.numel());
    for (double& value : values) value /= std::sqrt(static_cast<double>(projector.rows));
    copy_values(values, projector);
  };
  return options;
}

// The others' eps would differ: linear modules alone are compared.
TEST(Apollo, TenStepsEqualTheReference) {
  expect_reference("apollo", "channel", apollo(3, 4, ApolloScale::channel, false, true), 1e-5);
  expect_reference("apollo", "front", apollo(3, 4, ApolloScale::channel, true, true), 1e-5);
  expect_reference("apollo", "mini", apollo(1, 128, ApolloScale::tensor, false, true), 1e-5);
  expect_reference("apollo", "unlimited", apollo(2, 1, ApolloScale::channel, false, false), 1e-5);
}

TEST(Apollo, Exactness) {
  expect_exactness(ApolloOptions{.adamw = kAdamW, .rank = 3, .update_interval = 4, .scale = 4});
}

// On average a random projection keeps the length of a row; another key gives another one.
TEST(Apollo, RandomProjectorKeepsLengths) {
  Problem problem;
  Tensor a = scratch(problem.context, 64, 400), b = scratch(problem.context, 64, 400);
  fill_random_projector(problem.context, make_key(1, "a"), a.view());
  fill_random_projector(problem.context, make_key(1, "b"), b.view());
  double squares = 0, product = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    squares += std::pow(a.view().row<float>(0)[i], 2);
    product += static_cast<double>(a.view().row<float>(0)[i]) * b.view().row<float>(0)[i];
  }
  EXPECT_NEAR(squares, 400, 4 * std::sqrt(2.0 * 400 / 64));
  EXPECT_LT(std::abs(product), 4 * std::sqrt(400.0 / 64));
}

TEST(Apollo, MiniKeepsTwoNumbersAChannel) {
  Problem problem;
  problem.add_standard();
  problem.start(ApolloOptions{.rank = 1, .scale = 128, .scale_type = ApolloScale::tensor});
  EXPECT_EQ(problem.updater->states()[4][0].numel(), 12);
  EXPECT_EQ(problem.updater->states()[5][0].numel(), 12);
  EXPECT_EQ(problem.updater->states()[5][2].numel(), 1);
  EXPECT_THROW(make_optimizer(ApolloOptions{.side = ProjectedSide::reverse_standard}), Error);
}

BadamOptions badam(BlockOrder order) {
  return {.adamw = {.beta2 = 0.95}, .order = order, .switch_interval = 3};
}

TEST(Badam, TenStepsEqualTheReference) {
  expect_reference("badam", "descending", badam(BlockOrder::descending));
}

TEST(Badam, Resume) {
  for (const BlockOrder order :
       {BlockOrder::ascending, BlockOrder::descending, BlockOrder::random, BlockOrder::fixed}) {
    for (const int at : {0, 1, 3, 5}) expect_exact_resume(badam(order), at);
  }
}

TEST(Badam, OneBlockAtATime) {
  Problem problem;
  problem.add_standard();
  problem.start(badam(BlockOrder::ascending));
  const std::size_t gradients_of_one =
      problem.memory.use().current[static_cast<std::size_t>(MemoryTag::gradients)];
  const auto start = problem.weights();
  const auto moved = [&](std::size_t i) { return problem.weights()[i] != start[i]; };
  EXPECT_EQ(problem.list.all()[5].storage->gradient(), nullptr);
  EXPECT_NE(problem.list.all()[4].storage->gradient(), nullptr);
  problem.run(0, 3);
  EXPECT_TRUE(moved(1) && moved(2) && moved(3) && moved(4));
  EXPECT_FALSE(moved(0) || moved(5) || moved(6) || moved(7));
  EXPECT_TRUE(problem.updater->states()[4].empty()) << "the next block is ready";
  EXPECT_EQ(problem.updater->states()[5].size(), 2u);
  problem.run(3, 6);
  EXPECT_TRUE(moved(5));
  EXPECT_EQ(problem.memory.use().current[static_cast<std::size_t>(MemoryTag::gradients)], gradients_of_one);
}

// One block that is never left is AdamW.
TEST(Badam, FixedBlockIsAdamW) {
  std::vector<std::vector<std::vector<float>>> results;
  for (const OptimizerOptions& options :
       {OptimizerOptions(badam(BlockOrder::fixed)), OptimizerOptions(AdamWOptions{.beta2 = 0.95})}) {
    Problem problem;
    problem.add("model.layers.0.mlp.up_proj.weight", 5, 6);
    problem.start(options);
    problem.run(0, 10);
    results.push_back(problem.weights());
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(Badam, RandomOrderTakesEachBlockOnce) {
  Problem problem;
  for (int layer = 0; layer < 5; ++layer)
    problem.add(format("model.layers.{}.mlp.up_proj.weight", layer), 2, 2);
  BadamOptions options = badam(BlockOrder::random);
  options.switch_interval = 1;
  problem.start(options);
  std::vector<int> times(5);
  for (int step = 0; step < 10; ++step) {
    const auto before = problem.weights();
    problem.run(step, step + 1);
    for (std::size_t i = 0; i < 5; ++i) times[i] += problem.weights()[i] != before[i];
    if (step == 4) {
      EXPECT_EQ(times, std::vector<int>(5, 1));
    }
  }
  EXPECT_EQ(times, std::vector<int>(5, 2));
}

TEST(Badam, Refusals) {
  Problem problem;
  problem.add("embed.weight", 2, 2);
  EXPECT_THROW(problem.start(badam(BlockOrder::ascending)), Error);
  EXPECT_THROW(make_optimizer(BadamOptions{.switch_interval = 0}), Error);
  Problem other;
  other.add("layers.7.weight", 2, 2);
  BadamOptions options = badam(BlockOrder::ascending);
  options.start_block = 1;
  EXPECT_THROW(other.start(options), Error);
}

}  // namespace
}  // namespace lode::test
