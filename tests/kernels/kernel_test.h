// What kernel and op tests share: guarded matrices, generators, comparison with double-precision references,
// and a driver that runs one case struct over SIMD targets, dtypes, odd shapes, strides and threads.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/format.h"
#include "core/rng.h"
#include "kernels/cpu/features.h"
#include "kernels/kernel.h"

namespace lode::test {

// A matrix of any dtype with `gap` unused elements after each row and guard zones at both ends.
class Matrix {
 public:
  Matrix() = default;
  Matrix(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t gap = 0)
      : dtype_(dtype), rows_(rows), cols_(cols), stride_(cols + gap) {
    bytes_.resize((static_cast<std::size_t>(rows * stride_) + 2 * kGuard) * size_of(dtype));
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = pattern(i);
  }

  DType dtype() const { return dtype_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  View view() { return {bytes_.data() + kGuard * size_of(dtype_), dtype_, rows_, cols_, stride_}; }
  ConstView view() const { return const_cast<Matrix*>(this)->view(); }

  double at(std::int64_t r, std::int64_t c) const {
    const ConstView v = view();
    switch (dtype_) {
      case DType::f32:
        return v.row<float>(r)[c];
      case DType::bf16:
        return to_f32(v.row<bf16>(r)[c]);
      case DType::f16:
        return to_f32(v.row<f16>(r)[c]);
      case DType::i32:
        return v.row<std::int32_t>(r)[c];
    }
    return 0.0;
  }
  void set(std::int64_t r, std::int64_t c, double value) {
    const View v = view();
    const auto x = static_cast<float>(value);
    switch (dtype_) {
      case DType::f32:
        v.row<float>(r)[c] = x;
        break;
      case DType::bf16:
        v.row<bf16>(r)[c] = to_bf16(x);
        break;
      case DType::f16:
        v.row<f16>(r)[c] = to_f16(x);
        break;
      case DType::i32:
        v.row<std::int32_t>(r)[c] = static_cast<std::int32_t>(value);
        break;
    }
  }
  // value(r, c) for every element.
  template <class F>
  void fill(F value) {
    for (std::int64_t r = 0; r < rows_; ++r) {
      for (std::int64_t c = 0; c < cols_; ++c) set(r, c, value(r, c));
    }
  }
  Matrix& fill_normal(Rng& rng, double mean = 0.0, double deviation = 1.0) {
    fill([&](std::int64_t, std::int64_t) { return mean + deviation * rng.next_normal(); });
    return *this;
  }

  // No byte outside the elements has changed.
  bool guards_intact() const {
    const std::size_t size = size_of(dtype_);
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      const std::int64_t element = static_cast<std::int64_t>(i / size) - static_cast<std::int64_t>(kGuard);
      const bool inside =
          element >= 0 && stride_ > 0 && element / stride_ < rows_ && element % stride_ < cols_;
      if (!inside && bytes_[i] != pattern(i)) return false;
    }
    return true;
  }
  bool same_bits(const Matrix& other) const { return bytes_ == other.bytes_; }

 private:
  static constexpr std::size_t kGuard = 32;  // elements
  static std::byte pattern(std::size_t i) { return static_cast<std::byte>(0xa5 ^ (i * 37 & 0xff)); }

  DType dtype_ = DType::f32;
  std::int64_t rows_ = 0, cols_ = 0, stride_ = 0;
  std::vector<std::byte> bytes_;
};

// value rounded as a store in `dtype` would.
inline double rounded(DType dtype, double value) {
  const auto x = static_cast<float>(value);
  return dtype == DType::bf16 ? to_f32(to_bf16(x)) : dtype == DType::f16 ? to_f32(to_f16(x)) : x;
}

// |got - want| <= absolute + relative * |want|. Half a unit of bf16's last place is up to 2^-8 of the value.
struct Tolerance {
  double absolute, relative;
};
inline Tolerance tolerance_of(DType dtype, double f32_error = 2e-6) {
  return dtype == DType::bf16 ? Tolerance{f32_error, 0x1p-8 + f32_error} : Tolerance{f32_error, f32_error};
}

// Compares every element with want(r, c); NaN matches NaN, infinities must be equal. Reports the worst
// element.
template <class F>
void expect_near(const Matrix& got, F want, Tolerance tolerance, const std::string& what) {
  EXPECT_TRUE(got.guards_intact()) << what << ": wrote outside the matrix";
  double worst = 0.0;
  std::string worst_place;
  for (std::int64_t r = 0; r < got.rows(); ++r) {
    for (std::int64_t c = 0; c < got.cols(); ++c) {
      const double g = got.at(r, c), w = want(r, c);
      if (g == w || (std::isnan(g) && std::isnan(w))) continue;
      double excess = std::abs(g - w) / (tolerance.absolute + tolerance.relative * std::abs(w));
      if (!(excess < INFINITY)) excess = INFINITY;
      if (excess > worst) {
        worst = excess;
        worst_place = format("[{}, {}]: got {}, want {}", r, c, g, w);
      }
    }
  }
  EXPECT_LE(worst, 1.0) << what << worst_place;
}

// d f / d x at x, of a double-precision f, by central differences; the error is about 1e-9 for well-scaled f.
template <class F>
double central_difference(F f, double x, double step = 1e-5) {
  return (f(x + step) - f(x - step)) / (2.0 * step);
}

// A context with its own memory.
class TestContext {
 public:
  explicit TestContext(int threads = 1) : workspace_(memory_), context_{threads, &workspace_} {}
  KernelContext& operator*() { return context_; }

 private:
  Memory memory_;
  Workspace workspace_;
  KernelContext context_;
};

// Runs body under each SIMD target of this machine.
template <class Body>
void for_each_target(Body body) {
  for (const std::string& target : available_simd_targets()) {
    SCOPED_TRACE("SIMD target " + target);
    force_simd_target(target);
    body();
  }
  force_simd_target("");
}

struct Shape {
  std::int64_t rows, cols;
};
// Odd sizes, none, one; the last has three reduction blocks and is enough for three threads to split.
inline std::vector<Shape> odd_shapes() {
  return {{0, 17}, {1, 1}, {3, 3}, {5, 7}, {65, 17}, {2, 65}, {130, 257}};
}

// How a case is made: the same arguments give the same case.
struct Make {
  DType dtype;
  Shape shape;
  std::int64_t gap;  // unused elements after each row of every matrix
  std::uint64_t seed;
};

// Case(const Make&, Rng&) makes inputs; run(KernelContext&) calls the kernel once; check() compares with the
// reference; outputs() lists what the kernel wrote. Checks against the reference with one thread, and that
// two and three threads give the same bits.
template <class Case>
void check_kernel(const std::vector<Shape>& shapes = odd_shapes(),
                  const std::vector<DType>& dtypes = {DType::f32, DType::bf16}) {
  for_each_target([&] {
    for (const DType dtype : dtypes) {
      for (const Shape& shape : shapes) {
        for (const std::int64_t gap : {0, 5}) {
          SCOPED_TRACE(format("{} [{}, {}] gap {}", name_of(dtype), shape.rows, shape.cols, gap));
          const Make make{dtype, shape, gap, 7};
          Rng rng(make.seed, "kernel_test");
          Case first(make, rng);
          first.run(*TestContext(1));
          first.check();
          for (const int threads : {2, 3}) {
            Rng again(make.seed, "kernel_test");
            Case other(make, again);
            other.run(*TestContext(threads));
            const std::vector<const Matrix*> want = first.outputs(), got = other.outputs();
            for (std::size_t i = 0; i < want.size(); ++i) {
              EXPECT_TRUE(got[i]->same_bits(*want[i]))
                  << "output " << i << " depends on threads: " << threads;
            }
          }
          if (testing::Test::HasFailure()) return;  // one failing setup says enough
        }
      }
    }
  });
}

}  // namespace lode::test
