#include "kernels/rotary.h"

#include "kernels/kernel_test.h"

namespace lode::test {
namespace {

constexpr std::int64_t kPositions = 40;

// The shape's cols are half the rotated channels of a head; three heads, of which `kRest` channels do not
// rotate.
template <bool inverse>
struct RotaryCase {
  static constexpr std::int64_t kHeads = 3, kRest = 2;
  std::int64_t half, head_dim;
  Matrix x, cos, sin, before;
  std::vector<std::int32_t> positions;

  RotaryCase(const Make& m, Rng& rng)
      : half(m.shape.cols),
        head_dim(2 * half + kRest),
        x(m.dtype, m.shape.rows, kHeads * head_dim, m.gap),
        cos(DType::f32, kPositions, half, m.gap),
        sin(cos) {
    x.fill_normal(rng);
    const auto angle = [&](auto p, auto j) {
      return static_cast<double>(p) * std::pow(100.0, -static_cast<double>(j) / static_cast<double>(half));
    };
    cos.fill([&](auto p, auto j) { return std::cos(angle(p, j)); });
    sin.fill([&](auto p, auto j) { return std::sin(angle(p, j)); });
    for (std::int64_t t = 0; t < m.shape.rows; ++t) {
      positions.push_back(static_cast<std::int32_t>(rng.below(kPositions)));
    }
    before = x;
  }
  void run(KernelContext& context) {
    rotary_apply(x.dtype(), context,
                 {x.view(), kHeads, head_dim, 2 * half, cos.view(), sin.view(), positions, inverse});
  }
  void check() const {
    const auto want = [&](std::int64_t t, std::int64_t c) {
      const std::int64_t j = c % head_dim;
      if (j >= 2 * half) return before.at(t, c);
      const std::int64_t p = positions[static_cast<std::size_t>(t)];
      const double cosine = cos.at(p, j % half), sine = (inverse ? -1.0 : 1.0) * sin.at(p, j % half);
      return j < half ? before.at(t, c) * cosine - before.at(t, c + half) * sine
                      : before.at(t, c) * cosine + before.at(t, c - half) * sine;
    };
    expect_near(x, want, tolerance_of(x.dtype(), 1e-6), "x");
  }
  std::vector<const Matrix*> outputs() const { return {&x}; }
};

TEST(Rotary, Forward) {
  check_kernel<RotaryCase<false>>();
}
TEST(Rotary, Inverse) {
  check_kernel<RotaryCase<true>>();
}

TEST(Rotary, InverseUndoesForward) {
  for_each_target([] {
    Rng rng(5, "rotary");
    RotaryCase<false> forward({DType::f32, {9, 32}, 0, 1}, rng);
    forward.run(*TestContext());
    Rng again(5, "rotary");
    RotaryCase<true> back({DType::f32, {9, 32}, 0, 1}, again);
    back.positions = forward.positions;
    back.x = forward.x;
    back.run(*TestContext());
    expect_near(
        back.x, [&](auto r, auto c) { return forward.before.at(r, c); }, {1e-6, 1e-6}, "x");
  });
}

// The gradient of sum(dy * rotate(x)) is dy rotated back: <rotate(x), dy> = <x, inverse(dy)>.
TEST(Rotary, InverseIsTheTranspose) {
  for_each_target([] {
    Rng rng(6, "rotary");
    RotaryCase<false> a({DType::f32, {7, 17}, 0, 1}, rng);
    RotaryCase<true> b({DType::f32, {7, 17}, 0, 1}, rng);
    b.positions = a.positions;
    a.run(*TestContext());
    b.run(*TestContext());
    double left = 0.0, right = 0.0;
    for (std::int64_t r = 0; r < a.x.rows(); ++r) {
      for (std::int64_t c = 0; c < a.x.cols(); ++c) {
        left += a.x.at(r, c) * b.before.at(r, c);
        right += a.before.at(r, c) * b.x.at(r, c);
      }
    }
    EXPECT_NEAR(left, right, 1e-4);
  });
}

}  // namespace
}  // namespace lode::test
