#include "kernels/matmul.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/parallel.h"
#include "core/rng.h"

namespace lode {
namespace {

float value_of(const std::byte* data, DType dtype, std::int64_t i) {
  return dtype == DType::f32 ? reinterpret_cast<const float*>(data)[i]
                             : to_f32(reinterpret_cast<const bf16*>(data)[i]);
}

// A matrix with `gap` unused elements after each row and guards around it, all holding a sentinel.
class Matrix {
 public:
  static constexpr float kSentinel = 1024.0f;
  static constexpr std::int64_t kGuard = 64;

  Matrix(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t gap, Rng& rng)
      : dtype_(dtype), rows_(rows), cols_(cols), stride_(cols + gap) {
    bytes_.resize(static_cast<std::size_t>(rows * stride_ + 2 * kGuard) * size_of(dtype));
    for (std::int64_t i = 0; i < rows * stride_ + 2 * kGuard; ++i) set(i, kSentinel);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) set(index(r, c), static_cast<float>(rng.next_normal()));
    }
  }
  View view() { return {bytes_.data() + kGuard * size_of(dtype_), dtype_, rows_, cols_, stride_}; }
  double at(std::int64_t r, std::int64_t c) const { return value_of(bytes_.data(), dtype_, index(r, c)); }
  bool guards_intact() const {
    for (std::int64_t i = 0; i < rows_ * stride_ + 2 * kGuard; ++i) {
      const std::int64_t row = (i - kGuard) / stride_, col = (i - kGuard) % stride_;
      const bool inside = i >= kGuard && row < rows_ && col < cols_;
      if (!inside && value_of(bytes_.data(), dtype_, i) != kSentinel) return false;
    }
    return true;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::int64_t index(std::int64_t r, std::int64_t c) const { return kGuard + r * stride_ + c; }
  void set(std::int64_t i, float x) {
    if (dtype_ == DType::f32) {
      reinterpret_cast<float*>(bytes_.data())[i] = x;
    } else {
      reinterpret_cast<bf16*>(bytes_.data())[i] = to_bf16(x);
    }
  }
  DType dtype_;
  std::int64_t rows_, cols_, stride_;
  std::vector<std::byte> bytes_;
};

struct Case {
  std::int64_t m, n, k;
  bool transpose_a = false, transpose_b = false, bias = false, accumulate = false;
  DType in = DType::f32, out = DType::f32;
  std::int64_t gap = 0;
  int threads = 1;
};

std::string name_of(const Case& c) {
  return format("{}x{}x{} ta={} tb={} bias={} acc={} {}->{} gap={} threads={}", c.m, c.n, c.k, c.transpose_a,
                c.transpose_b, c.bias, c.accumulate, name_of(c.in), name_of(c.out), c.gap, c.threads);
}

class MatMulTest : public ::testing::Test {
 protected:
  MatMulTest() : workspace_(memory_) {}

  // Runs the case against sums in double and returns the bytes of c.
  std::vector<std::byte> check(const Case& t) {
    SCOPED_TRACE(name_of(t));
    Rng rng(7, name_of(Case{t.m, t.n, t.k}));
    Matrix a(t.in, t.transpose_a ? t.k : t.m, t.transpose_a ? t.m : t.k, t.gap, rng);
    Matrix b(t.in, t.transpose_b ? t.n : t.k, t.transpose_b ? t.k : t.n, t.gap * 2, rng);
    Matrix c(t.out, t.m, t.n, t.gap * 3, rng), bias(DType::f32, 1, t.n, 0, rng);
    const Matrix before = c, a_before = a, b_before = b;
    KernelContext context{t.threads, &workspace_};
    matmul(context, {.a = a.view(),
                     .b = b.view(),
                     .transpose_a = t.transpose_a,
                     .transpose_b = t.transpose_b,
                     .bias = t.bias ? ConstView(bias.view()) : ConstView{},
                     .accumulate = t.accumulate,
                     .c = c.view()});
    EXPECT_TRUE(c.guards_intact());
    EXPECT_EQ(a.bytes(), a_before.bytes());
    EXPECT_EQ(b.bytes(), b_before.bytes());
    const double tolerance = 1e-6 * std::sqrt(static_cast<double>(t.k) + 1) * 4;
    for (std::int64_t i = 0; i < t.m; ++i) {
      for (std::int64_t j = 0; j < t.n; ++j) {
        double sum = (t.bias ? bias.at(0, j) : 0) + (t.accumulate ? before.at(i, j) : 0);
        double size = 1 + std::abs(sum);
        for (std::int64_t d = 0; d < t.k; ++d) {
          const double term =
              (t.transpose_a ? a.at(d, i) : a.at(i, d)) * (t.transpose_b ? b.at(j, d) : b.at(d, j));
          sum += term;
          size += std::abs(term);
        }
        const double allowed = tolerance * size + (t.out == DType::bf16 ? std::abs(sum) * 0x1p-8 : 0);
        if (std::abs(c.at(i, j) - sum) > allowed) {
          ADD_FAILURE() << "at " << i << ", " << j << ": " << c.at(i, j) << " instead of " << sum;
          return c.bytes();
        }
      }
    }
    return c.bytes();
  }

  Memory memory_;
  Workspace workspace_;
};

TEST_F(MatMulTest, EveryFormOfOddSizes) {
  const std::vector<std::array<std::int64_t, 3>> sizes = {
      {1, 1, 1},  {1, 7, 3},    {2, 1, 9},   {3, 33, 65},    {4, 5, 128},   {5, 1, 1},
      {7, 13, 1}, {17, 31, 63}, {64, 1, 64}, {33, 129, 100}, {130, 70, 257}};
  for (const auto& [m, n, k] : sizes) {
    for (int bits = 0; bits < 16; ++bits) {
      for (const DType in : {DType::f32, DType::bf16}) {
        for (const DType out : {DType::f32, DType::bf16}) {
          check({m, n, k, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, in, out,
                 bits % 3 * 5, 1 + bits % 2});
        }
      }
    }
  }
}

TEST_F(MatMulTest, ModelShapes) {
  check({200, 768, 256, false, true, true, false, DType::bf16, DType::bf16, 0, 2});
  check({200, 256, 768, false, false, false, false, DType::bf16, DType::bf16, 0, 2});
  check({256, 320, 600, true, false, false, true, DType::bf16, DType::f32, 0, 2});
  check({40, 5000, 64, false, true, false, false, DType::bf16, DType::f32, 0, 2});
  check({1100, 40, 1030, true, true, true, true, DType::bf16, DType::bf16, 3,
         2});  // several panels when widened
}

// The forms of narrow_matmul.h, at both sides of its limits; the same bits for any number of threads.
TEST_F(MatMulTest, OneNarrowSide) {
  const std::vector<std::array<std::int64_t, 3>> sizes = {{300, 700, 16}, {128, 130, 2},  {129, 515, 64},
                                                          {131, 128, 66}, {200, 260, 15}, {300, 16, 700},
                                                          {128, 1, 130},  {257, 48, 514}, {200, 64, 333}};
  for (const auto& [m, n, k] : sizes) {
    for (int bits = 0; bits < 8; ++bits) {
      const bool transpose_b = (bits & 1) != 0, accumulate = (bits & 2) != 0;
      const DType out = (bits & 4) != 0 ? DType::f32 : DType::bf16;
      Case t{m, n, k, false, transpose_b, false, accumulate, DType::bf16, out, 2, 1};
      const auto one = check(t);
      t.threads = 2;
      const auto two = check(t);
      const bool narrow = k % 2 == 0 && k != 66;
      if (narrow && bf16_matmul_path().native_bf16) {
        EXPECT_EQ(one, two);
      }
      t.gap = 1;  // rows that do not begin at a cell
      check(t);
    }
  }
}

// The same of its third form, gradients of narrow matrices.
TEST_F(MatMulTest, OneNarrowSideOfAGradient) {
  const std::vector<std::array<std::int64_t, 3>> sizes = {{700, 16, 300}, {130, 2, 128},  {515, 64, 130},
                                                          {16, 700, 300}, {64, 333, 258}, {3, 128, 1000},
                                                          {192, 7, 131}};
  for (const auto& [m, n, k] : sizes) {
    for (const bool accumulate : {false, true}) {
      for (const std::int64_t gap : {0, 1, 6}) {
        Case t{m, n, k, true, false, false, accumulate, DType::bf16, DType::f32, gap, 1};
        const auto one = check(t);
        t.threads = 2;
        const auto two = check(t);
        if (k % 2 == 0 && bf16_matmul_path().native_bf16) {
          EXPECT_EQ(one, two);
        }
      }
    }
  }
}

TEST_F(MatMulTest, EmptyProducts) {
  for (const DType out : {DType::f32, DType::bf16}) {
    for (int bits = 0; bits < 4; ++bits) {
      check({3, 5, 0, false, false, (bits & 1) != 0, (bits & 2) != 0, DType::bf16, out, 2, 2});
      check({2, 5, 0, false, true, (bits & 1) != 0, (bits & 2) != 0, DType::f32, out, 2, 2});
      check({0, 5, 3, false, true, (bits & 1) != 0, (bits & 2) != 0, DType::f32, out, 2, 2});
      check({3, 0, 3, true, false, (bits & 1) != 0, (bits & 2) != 0, DType::f32, out, 2, 2});
    }
  }
}

TEST_F(MatMulTest, RepeatsAreBitEqual) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool transpose_a : {false, true}) {
      const Case t{96, 160, 2000, transpose_a, false, false, true, dtype, DType::f32, 0, 2};
      const auto first = check(t);
      for (int i = 0; i < 3; ++i) EXPECT_EQ(check(t), first);
    }
  }
}

TEST_F(MatMulTest, FewRowsDoNotDependOnThreads) {
  for (const std::int64_t m : {1, 2, 3, 4}) {
    Case t{m, 1003, 517, false, true, true, false, DType::bf16, DType::f32, 1, 1};
    const auto one = check(t);
    t.threads = 2;
    EXPECT_EQ(check(t), one);
  }
}

// Library scratchpads shared between threads spoil results silently; each thread has its own workspace.
TEST_F(MatMulTest, CallsInsideAParallelRegion) {
  constexpr int kThreads = 2, kTasks = 64;
  constexpr std::int64_t kSize = 128;
  Rng rng(3, "parallel");
  Matrix a(DType::bf16, kSize, kSize, 0, rng), b(DType::bf16, kSize, kSize, 0, rng);
  std::vector<Workspace> workspaces(kThreads, Workspace(memory_));
  std::vector<Matrix> results(kTasks, Matrix(DType::f32, kSize, kSize, 0, rng));
  Matrix expected(DType::f32, kSize, kSize, 0, rng);
  const auto product = [&](Matrix& c) {
    return MatMul{.a = a.view(), .b = b.view(), .transpose_a = true, .c = c.view()};
  };
  KernelContext alone{1, &workspace_};
  matmul(alone, product(expected));
  for (int repeat = 0; repeat < 10; ++repeat) {
    parallel_tasks(kThreads, kTasks, [&](std::int64_t task, int thread) {
      KernelContext context{kThreads, &workspaces[static_cast<std::size_t>(thread)]};
      matmul(context, product(results[static_cast<std::size_t>(task)]));
    });
    for (Matrix& result : results) {
      for (std::int64_t i = 0; i < kSize; ++i) {
        for (std::int64_t j = 0; j < kSize; ++j)
          ASSERT_EQ(result.at(i, j), expected.at(i, j)) << i << ", " << j;
      }
    }
  }
}

TEST_F(MatMulTest, ShapesThatDoNotFitAreRefused) {
  Rng rng(1, "shapes");
  Matrix a(DType::f32, 3, 4, 0, rng), b(DType::f32, 5, 2, 0, rng), c(DType::f32, 3, 2, 0, rng);
  KernelContext context{1, &workspace_};
  EXPECT_THROW(matmul(context, {.a = a.view(), .b = b.view(), .c = c.view()}), Error);
  EXPECT_THROW(matmul(context, {.a = a.view(), .b = b.view(), .transpose_b = true, .c = c.view()}), Error);
}

TEST_F(MatMulTest, PathAndVersion) {
  const MatMulPath path = bf16_matmul_path();
  EXPECT_FALSE(path.why.empty());
  EXPECT_EQ(path.native_bf16, path.chosen == "bf16 dot products");
  if (const char* isa = std::getenv("ONEDNN_MAX_CPU_ISA"); isa != nullptr && std::string(isa) == "AVX2") {
    EXPECT_FALSE(path.native_bf16);
  }
  EXPECT_EQ(matmul_library_version().rfind("oneDNN 2.", 0), 0u);
}

TEST_F(MatMulTest, PeakIsPlausible) {
  KernelContext context{available_threads(), &workspace_};
  const double peak = measure_matmul_peak(context, memory_, DType::bf16, false);
  EXPECT_GT(peak, 0.1);
  EXPECT_LT(peak, 1e6);
  EXPECT_EQ(memory_.use().current[static_cast<std::size_t>(MemoryTag::program)], 0u);
}

// The same tests again in a process whose oneDNN may use no more than AVX2, as on machines without AVX-512.
TEST(MatMulForced, Avx2) {
  if (std::getenv("ONEDNN_MAX_CPU_ISA") != nullptr) GTEST_SKIP() << "already restricted";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
    execl("/proc/self/exe", "kernels_tests", "--gtest_filter=MatMulTest.*:-*Peak*", "--gtest_brief=1",
          nullptr);
    _exit(127);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace lode
