#include "kernels/elementwise.h"

#include "kernels/kernel_test.h"

namespace lode::test {
namespace {

template <bool in_place>
struct AddCase {
  Matrix a, b, y, before;
  AddCase(const Make& m, Rng& rng) : a(m.dtype, m.shape.rows, m.shape.cols, m.gap), b(a), y(a) {
    a.fill_normal(rng);
    b.fill_normal(rng);
    before = a;
  }
  void run(KernelContext& context) {
    if (in_place) {
      add_inplace(a.dtype(), context, b.view(), a.view());
    } else {
      add_rows(a.dtype(), context, a.view(), b.view(), y.view());
    }
  }
  void check() const {
    const auto want = [&](auto r, auto c) { return rounded(a.dtype(), before.at(r, c) + b.at(r, c)); };
    expect_near(in_place ? a : y, want, {0, 0}, "sum");
  }
  std::vector<const Matrix*> outputs() const { return {&a, &y}; }
};
TEST(Elementwise, AddInplace) {
  check_kernel<AddCase<true>>();
}
TEST(Elementwise, AddRows) {
  check_kernel<AddCase<false>>();
}

template <bool accumulate>
struct SumRowsCase {
  Matrix x, out, before;
  SumRowsCase(const Make& m, Rng& rng)
      : x(m.dtype, m.shape.rows, m.shape.cols, m.gap), out(DType::f32, 1, m.shape.cols) {
    x.fill_normal(rng);
    out.fill_normal(rng);
    before = out;
  }
  void run(KernelContext& context) { sum_rows(x.dtype(), context, x.view(), accumulate, out.view()); }
  void check() const {
    const auto want = [&](auto, std::int64_t c) {
      double sum = accumulate ? before.at(0, c) : 0.0;
      for (std::int64_t r = 0; r < x.rows(); ++r) sum += x.at(r, c);
      return sum;
    };
    expect_near(out, want, {2e-5, 1e-6}, "sums");
  }
  std::vector<const Matrix*> outputs() const { return {&out}; }
};
TEST(Elementwise, SumRows) {
  check_kernel<SumRowsCase<false>>();
}
TEST(Elementwise, SumRowsAccumulates) {
  check_kernel<SumRowsCase<true>>();
}

struct SquaresCase {
  Matrix x, out;
  SquaresCase(const Make& m, Rng& rng)
      : x(m.dtype, m.shape.rows, m.shape.cols, m.gap), out(DType::f32, 1, 1) {
    x.fill_normal(rng);
  }
  double sum = -1.0;
  void run(KernelContext& context) {
    sum = sum_of_squares(context, x.view());
    out.set(0, 0, sum);
  }
  void check() const {
    double want = 0.0;
    for (std::int64_t r = 0; r < x.rows(); ++r) {
      for (std::int64_t c = 0; c < x.cols(); ++c) want += x.at(r, c) * x.at(r, c);
    }
    EXPECT_NEAR(sum, want, 1e-6 * want);
  }
  std::vector<const Matrix*> outputs() const { return {&out}; }
};
TEST(Elementwise, SumOfSquares) {
  check_kernel<SquaresCase>();
}

TEST(Elementwise, SumOfHugeSquaresIsFinite) {
  for_each_target([] {
    Matrix x(DType::f32, 1, 2000);
    x.fill([](auto, auto) { return 1e30; });
    EXPECT_NEAR(sum_of_squares(*TestContext(), x.view()), 2e63, 1e58);
    x.set(0, 1999, INFINITY);
    EXPECT_EQ(sum_of_squares(*TestContext(), x.view()), INFINITY);
    x.set(0, 3, NAN);
    EXPECT_TRUE(std::isnan(sum_of_squares(*TestContext(), x.view())));
  });
}

TEST(Elementwise, FindNonFinite) {
  for_each_target([] {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const std::int64_t gap : {0, 3}) {
        Matrix x(dtype, 200, 257, gap);
        x.fill([](auto r, auto c) { return (r + c) % 2 == 0 ? 3e38 : -1e-40; });
        for (const int threads : {1, 2, 3})
          EXPECT_EQ(find_non_finite(*TestContext(threads), x.view()), std::nullopt);
        x.set(199, 256, INFINITY);
        EXPECT_EQ(find_non_finite(*TestContext(2), x.view()), 199 * 257 + 256);
        x.set(70, 5, NAN);
        x.set(70, 11, -INFINITY);
        for (const int threads : {1, 2, 3})
          EXPECT_EQ(find_non_finite(*TestContext(threads), x.view()), 70 * 257 + 5);
        x.set(0, 0, -INFINITY);
        EXPECT_EQ(find_non_finite(*TestContext(2), x.view()), 0);
      }
    }
    EXPECT_EQ(find_non_finite(*TestContext(), Matrix(DType::f32, 0, 5).view()), std::nullopt);
  });
}

const std::vector<DType> kFloats = {DType::f32, DType::bf16, DType::f16};

TEST(Elementwise, ConvertRoundsToNearestEven) {
  for_each_target([] {
    // Ties of bf16 and f16, subnormals, overflow, signs, NaN.
    const std::vector<double> hostile = {0.0,       -0.0,      0x1.01p0, 0x1.03p0, -0x1.01p0, 0x1.002p0,
                                         0x1.006p0, 65519.0,   65520.0,  3.4e38,   -3.4e38,   1e-40,
                                         0x1p-25,   0x1.8p-24, -6e-8,    INFINITY, -INFINITY, NAN};
    Rng rng(1, "convert");
    for (const DType from : kFloats) {
      for (const DType to : kFloats) {
        for (const Shape& shape : odd_shapes()) {
          for (const std::int64_t gap : {0, 5}) {
            Matrix x(from, shape.rows, shape.cols, gap), y(to, shape.rows, shape.cols, 2 * gap);
            x.fill([&](auto r, auto c) {
              const auto i = static_cast<std::size_t>(r * shape.cols + c);
              return i < hostile.size() ? hostile[i] : rng.next_normal();
            });
            convert(*TestContext(2), x.view(), y.view());
            expect_near(
                y, [&](auto r, auto c) { return rounded(to, x.at(r, c)); }, {0, 0}, "converted");
          }
        }
      }
    }
  });
}

// The vector rounding is core's rounding for every kind of f32: all exponents, both signs, ties on either
// side.
TEST(Elementwise, ConvertToBf16EqualsToBf16) {
  for_each_target([] {
    Matrix x(DType::f32, 512, 48), y(DType::bf16, 512, 48);
    const std::uint32_t mantissas[] = {0u,        1u,        0x7fffu,   0x8000u,   0x8001u,   0xffffu,
                                       0x10000u,  0x17fffu,  0x18000u,  0x18001u,  0x7f7fffu, 0x7f8000u,
                                       0x7fffffu, 0x400000u, 0x3fffffu, 0x1u << 16};
    for (std::int64_t r = 0; r < 512; ++r) {
      for (std::int64_t c = 0; c < 48; ++c) {
        x.view().row<std::uint32_t>(r)[c] = static_cast<std::uint32_t>(r) << 23 | mantissas[c % 16];
      }
    }
    convert(*TestContext(), x.view(), y.view());
    std::int64_t wrong = 0;
    for (std::int64_t r = 0; r < 512; ++r) {
      for (std::int64_t c = 0; c < 48; ++c) {
        wrong += y.view().row<bf16>(r)[c].bits != to_bf16(x.view().row<float>(r)[c]).bits ? 1 : 0;
      }
    }
    EXPECT_EQ(wrong, 0);
  });
}

TEST(Elementwise, Fill) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i32}) {
    for (const Shape& shape : odd_shapes()) {
      Matrix y(dtype, shape.rows, shape.cols, 3);
      fill(*TestContext(2), y.view(), -3.0f);
      expect_near(
          y, [](auto, auto) { return -3.0; }, {0, 0}, "filled");
    }
  }
}

TEST(Elementwise, ConvertRefusesIntegers) {
  Matrix x(DType::i32, 1, 3), y(DType::f32, 1, 3);
  EXPECT_THROW(convert(*TestContext(), x.view(), y.view()), Error);
}

TEST(F16Range, CountsWhatF16Loses) {
  for_each_target([] {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Matrix x(dtype, 3, 41, 2);
      x.fill([](auto r, auto c) { return r * 1000.0 - c; });
      x.set(0, 0, 0.0);
      x.set(1, 5, 70000.0);
      x.set(2, 40, -INFINITY);
      x.set(2, 39, 0x1p-25);
      x.set(2, 38, -0x1p-30);
      x.set(2, 37, 0x1p-24);
      const F16Range range = range_for_f16(*TestContext(2), x.view());
      EXPECT_EQ(range.overflows, 2);
      EXPECT_EQ(range.vanishing, 2);
      EXPECT_EQ(range.largest, INFINITY);
    }
    Matrix nan(DType::f32, 1, 3);
    nan.fill([](auto, auto c) { return c == 1 ? NAN : 1.0; });
    EXPECT_EQ(range_for_f16(*TestContext(), nan.view()).overflows, 1);
  });
}

}  // namespace
}  // namespace lode::test
