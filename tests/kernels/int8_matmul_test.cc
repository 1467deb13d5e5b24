#include "kernels/int8_matmul.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/int8_tiles.h"
#include "kernels/kernel_test.h"

namespace lode::test {
namespace {

struct Case {
  std::int64_t m, n, k;
  bool transpose_b = true, bias = false, accumulate = false;
  DType in = DType::f32, out = DType::f32;
};

std::string name_of(const Case& c) {
  return format("{} x {} x {}, {}, bias {}, accumulate {}, {} -> {}", c.m, c.n, c.k,
                c.transpose_b ? "forward" : "backward", c.bias, c.accumulate, lode::name_of(c.in),
                lode::name_of(c.out));
}

// Weights with a gap after each row and scales of very different sizes.
struct Weights {
  std::int64_t rows, cols, stride;
  std::vector<std::int8_t> q;
  std::vector<float> scale;

  Weights(std::int64_t r, std::int64_t c, Rng& rng) : rows(r), cols(c), stride(c + 4) {
    for (std::int64_t i = 0; i < rows * stride; ++i)
      q.push_back(static_cast<std::int8_t>(static_cast<int>(rng.below(255)) - 127));
    for (std::int64_t i = 0; i < rows; ++i)
      scale.push_back(static_cast<float>(std::exp(rng.next_normal()) / 100));
  }
  Int8Matrix matrix() const { return {q.data(), rows, cols, stride, scale.data()}; }
  double at(std::int64_t r, std::int64_t c) const {
    return static_cast<double>(scale[static_cast<std::size_t>(r)]) *
           q[static_cast<std::size_t>(r * stride + c)];
  }
};

class Int8MatMulTest : public ::testing::Test {
 protected:
  Matrix run(const Int8Tiles& tiles, int threads, const Case& t, const Matrix& a, const Weights& b,
             const Matrix& bias, const Matrix& before) {
    Matrix c = before;
    KernelContext context{threads, &workspace_};
    int8_matmul_with(tiles, context, product(t, a, b, bias, c));
    EXPECT_TRUE(c.guards_intact());
    return c;
  }

  static Int8MatMul product(const Case& t, const Matrix& a, const Weights& b, const Matrix& bias, Matrix& c) {
    return {.a = a.view(),
            .b = b.matrix(),
            .transpose_b = t.transpose_b,
            .bias = t.bias ? bias.view() : ConstView{},
            .accumulate = t.accumulate,
            .c = c.view()};
  }

  // Against sums in double of the unquantised `a`. A value is off by at most half a step of its block, 1/254
  // of the largest there (with the weights' scales in it, backward).
  void check(const Case& t) {
    SCOPED_TRACE(name_of(t));
    Rng rng(5, name_of(t));
    Matrix a(t.in, t.m, t.k, 3), bias(DType::f32, 1, t.n), before(t.out, t.m, t.n, 5);
    a.fill_normal(rng);
    bias.fill_normal(rng);
    before.fill_normal(rng);
    const Weights b(t.transpose_b ? t.n : t.k, t.transpose_b ? t.k : t.n, rng);
    const Matrix c = run(portable_int8_tiles(), 1, t, a, b, bias, before);
    const std::int64_t blocks = (t.k + kInt8Depth - 1) / kInt8Depth;
    const std::int64_t block = ((t.k + blocks - 1) / blocks + 3) / 4 * 4;
    double squares = 0, error_squares = 0;
    for (std::int64_t i = 0; i < t.m; ++i) {
      for (std::int64_t j = 0; j < t.n; ++j) {
        double sum = (t.bias ? bias.at(0, j) : 0) + (t.accumulate ? before.at(i, j) : 0), allowed = 0;
        const double outside = sum;
        for (std::int64_t begin = 0; begin < t.k; begin += block) {
          double largest = 0, weights = 0;
          for (std::int64_t d = begin; d < std::min(begin + block, t.k); ++d) {
            const double scale = t.transpose_b ? 1 : b.scale[static_cast<std::size_t>(d)];
            const double w = t.transpose_b ? b.at(j, d) : b.at(d, j);
            largest = std::max(largest, std::abs(a.at(i, d)) * scale);
            weights += std::abs(w) / scale;
            sum += a.at(i, d) * w;
          }
          allowed += largest / 254 * weights;
        }
        allowed = allowed * 1.001 + 1e-5 * (std::abs(sum) + 1) +
                  (t.out == DType::bf16 ? std::abs(sum) * 0x1p-8 : 0);
        ASSERT_NEAR(c.at(i, j), sum, allowed) << i << ", " << j;
        squares += (sum - outside) * (sum - outside);
        error_squares += (c.at(i, j) - sum) * (c.at(i, j) - sum);
      }
    }
    // The errors are independent, so that their size is far below the bound; with bf16 results less so.
    if (t.k > 1 && t.out == DType::f32) {
      EXPECT_LE(std::sqrt(error_squares), 0.03 * std::sqrt(squares));
    }
    for (const int threads : {1, 2, 3}) {
      EXPECT_TRUE(run(portable_int8_tiles(), threads, t, a, b, bias, before).same_bits(c)) << threads;
      if (vnni_int8_tiles() == nullptr) continue;
      EXPECT_TRUE(run(*vnni_int8_tiles(), threads, t, a, b, bias, before).same_bits(c))
          << threads << " threads, dot products";
    }
  }

  Memory memory_;
  Workspace workspace_{memory_};
};

TEST_F(Int8MatMulTest, OddSizesOfBothDirections) {
  constexpr std::int64_t kSizes[][3] = {{1, 1, 1},    {1, 64, 4},   {5, 65, 3},  {6, 63, 64},
                                        {7, 130, 67}, {13, 17, 70}, {64, 96, 33}};
  for (const auto& [m, n, k] : kSizes) {
    for (const bool forward : {true, false}) {
      check({m, n, k, forward, true, false, DType::f32, DType::f32});
      check({m, n, k, forward, false, true, DType::bf16, DType::bf16});
      check({m, n, k, forward, true, true, DType::bf16, DType::f32});
      check({m, n, k, forward, false, false, DType::f32, DType::bf16});
    }
  }
}

TEST_F(Int8MatMulTest, SeveralBlocksAndTasks) {
  check({3, 70, 64});
  check({3, 70, 65});
  check({3, 70, 512});
  check({3, 70, 513});  // more blocks than are packed together
  check({20, 5, 1540, false, false, true});
  check({513, 65, 9});  // more rows than a task has
  check({1025, 3, 12, false, true, false, DType::bf16, DType::bf16});
}

TEST_F(Int8MatMulTest, APeakSpoilsItsBlockAlone) {
  Rng rng(1, "peak");
  Matrix a(DType::f32, 1, 1024), bias(DType::f32, 1, 1), before(DType::f32, 1, 1);
  a.fill_normal(rng, 0, 1e-3);
  a.set(0, 600, 100);
  Weights b(1, 1024, rng);
  const Case t{1, 1, 1024};
  b.q[600] = 0;
  std::fill(b.q.begin() + 512, b.q.begin() + 1024, std::int8_t{0});
  double sum = 0;
  for (std::int64_t d = 0; d < 512; ++d) sum += a.at(0, d) * b.at(0, d);
  EXPECT_NEAR(run(portable_int8_tiles(), 1, t, a, b, bias, before).at(0, 0), sum, 0.02 * std::abs(sum));
}

TEST_F(Int8MatMulTest, NotFiniteStaysNotFiniteInItsRow) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Rng rng(1, "bad");
      Matrix a(dtype, 3, 600), bias(DType::f32, 1, 70), before(dtype, 3, 70);
      a.fill_normal(rng);
      a.set(1, 590, static_cast<double>(bad));
      const Weights b(70, 600, rng);
      const Case t{3, 70, 600, true, false, false, dtype, dtype};
      for (const Int8Tiles* tiles : {&portable_int8_tiles(), vnni_int8_tiles()}) {
        if (tiles == nullptr) continue;
        const Matrix c = run(*tiles, 1, t, a, b, bias, before);
        for (std::int64_t n = 0; n < 70; ++n) {
          EXPECT_TRUE(std::isfinite(c.at(0, n)) && std::isfinite(c.at(2, n)));
          EXPECT_TRUE(std::isnan(c.at(1, n)));
        }
      }
    }
  }
}

TEST_F(Int8MatMulTest, ZerosAndTinyValuesGiveTheBias) {
  Rng rng(1, "zeros");
  Matrix a(DType::f32, 2, 10), bias(DType::f32, 1, 3), before(DType::f32, 2, 3);
  a.fill([](std::int64_t r, std::int64_t) { return r == 0 ? 0.0 : 1e-38; });
  bias.fill_normal(rng);
  const Weights b(3, 10, rng);
  for (const Int8Tiles* tiles : {&portable_int8_tiles(), vnni_int8_tiles()}) {
    if (tiles == nullptr) continue;
    const Matrix c = run(*tiles, 1, {2, 3, 10, true, true}, a, b, bias, before);
    for (std::int64_t r = 0; r < 2; ++r) {
      for (std::int64_t n = 0; n < 3; ++n) EXPECT_EQ(c.at(r, n), bias.at(0, n));
    }
  }
}

TEST_F(Int8MatMulTest, ShapesThatDoNotFitAreRefused) {
  Rng rng(1, "shapes");
  Matrix a(DType::f32, 2, 10), c(DType::f32, 2, 4);
  const Weights b(3, 10, rng);
  KernelContext context{1, &workspace_};
  EXPECT_THROW(int8_matmul(context, {.a = a.view(), .b = b.matrix(), .transpose_b = true, .c = c.view()}),
               Error);
  Matrix empty(DType::f32, 0, 10), nothing(DType::f32, 0, 3);
  int8_matmul(context, {.a = empty.view(), .b = b.matrix(), .transpose_b = true, .c = nothing.view()});
}

}  // namespace
}  // namespace lode::test
