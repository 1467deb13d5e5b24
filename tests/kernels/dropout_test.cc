#include "kernels/dropout.h"

#include "kernels/kernel_test.h"

namespace lode::test {
namespace {

constexpr PhiloxKey kKey = {0x12345678u, 0x9abcdef0u};

bool kept(std::int64_t sample, std::int64_t position, std::int64_t c, double p) {
  const auto bits = static_cast<std::uint64_t>(sample);
  const auto words = philox({static_cast<std::uint32_t>(c / 4), static_cast<std::uint32_t>(position),
                             static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32)},
                            kKey);
  return words[static_cast<std::size_t>(c % 4)] >= p * 0x1p32;
}

Segments segments_of(std::int64_t tokens) {
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> samples;
  auto left = static_cast<std::int32_t>(tokens);
  for (std::int32_t length = 1; left > length; length = 2 * length + 1) {
    lengths.push_back(length);
    samples.push_back((std::int64_t{5} << 33) + length);
    left -= length;
  }
  return Segments(lengths, samples, static_cast<std::int32_t>(tokens));  // the rest is padding
}

template <bool in_place>
struct DropoutCase {
  static constexpr float kP = 0.3f;
  Matrix x, y, before;
  Segments segments;
  DropoutCase(const Make& m, Rng& rng)
      : x(m.dtype, m.shape.rows, m.shape.cols, m.gap), y(x), segments(segments_of(m.shape.rows)) {
    x.fill_normal(rng);
    before = x;
  }
  void run(KernelContext& context) {
    dropout_apply(x.dtype(), context, {x.view(), in_place ? x.view() : y.view(), kP, kKey, &segments});
  }
  void check() const {
    const auto want = [&](std::int64_t r, std::int64_t c) {
      const auto t = static_cast<std::size_t>(r);
      const Segment& segment = segments.list()[static_cast<std::size_t>(segments.segment_of()[t])];
      const double p = static_cast<double>(kP);
      return kept(segment.sample, segments.positions()[t], c, p) ? before.at(r, c) / (1.0 - p) : 0.0;
    };
    expect_near(in_place ? x : y, want, tolerance_of(x.dtype(), 3e-7), "y");
  }
  std::vector<const Matrix*> outputs() const { return {&x, &y}; }
};

TEST(Dropout, MaskIsTheStatedFunction) {
  check_kernel<DropoutCase<false>>();
}
TEST(Dropout, InPlace) {
  check_kernel<DropoutCase<true>>();
}

Matrix mask(const Segments& segments, float p, std::int64_t cols) {
  Matrix x(DType::f32, segments.num_tokens(), cols), y(x);
  x.fill([](auto, auto) { return 1.0; });
  dropout_apply(DType::f32, *TestContext(2), {x.view(), y.view(), p, kKey, &segments});
  return y;
}

TEST(Dropout, RateAndMeanAreRight) {
  for (const float p : {0.0f, 0.1f, 0.5f, 0.9f}) {
    const Segments segments(std::vector<std::int32_t>{512}, std::vector<std::int64_t>{3}, 512);
    const Matrix y = mask(segments, p, 256);
    double zeros = 0.0, sum = 0.0;
    for (std::int64_t r = 0; r < y.rows(); ++r) {
      for (std::int64_t c = 0; c < y.cols(); ++c) {
        zeros += y.at(r, c) == 0.0 ? 1.0 : 0.0;
        sum += y.at(r, c);
      }
    }
    const auto n = static_cast<double>(y.rows() * y.cols());
    const double q = static_cast<double>(p);
    const double deviation = std::sqrt(q * (1.0 - q) / n);
    EXPECT_NEAR(zeros / n, q, 5.0 * deviation + 1e-12);
    EXPECT_NEAR(sum / n, 1.0, 5.0 * deviation / (1.0 - q) + 1e-6);
  }
}

TEST(Dropout, NeighboursAreIndependent) {
  const Segments segments(std::vector<std::int32_t>{400}, std::vector<std::int64_t>{9}, 400);
  const Matrix y = mask(segments, 0.5f, 257);
  double along_row = 0.0, along_column = 0.0, count = 0.0;
  const auto sign = [&](std::int64_t r, std::int64_t c) { return y.at(r, c) == 0.0 ? -1.0 : 1.0; };
  for (std::int64_t r = 0; r + 1 < y.rows(); ++r) {
    for (std::int64_t c = 0; c + 1 < y.cols(); ++c) {
      along_row += sign(r, c) * sign(r, c + 1);
      along_column += sign(r, c) * sign(r + 1, c);
      count += 1.0;
    }
  }
  EXPECT_LT(std::abs(along_row / count), 5.0 / std::sqrt(count));
  EXPECT_LT(std::abs(along_column / count), 5.0 / std::sqrt(count));
}

// The same samples packed otherwise have the same masks.
TEST(Dropout, DoesNotDependOnPacking) {
  for_each_target([] {
    const std::vector<std::int32_t> lengths = {5, 9, 3};
    const std::vector<std::int64_t> samples = {11, 12, 1 << 20};
    const Matrix packed = mask(Segments(lengths, samples, 20), 0.4f, 70);
    const std::vector<std::int32_t> other_lengths = {3, 5, 9};
    const std::vector<std::int64_t> other_samples = {1 << 20, 11, 12};
    const Matrix other = mask(Segments(other_lengths, other_samples, 17), 0.4f, 70);
    std::int64_t differences = 0;
    for (std::int64_t t = 0; t < 17; ++t) {
      for (std::int64_t c = 0; c < 70; ++c)
        differences += packed.at(t, c) != other.at((t + 3) % 17, c) ? 1 : 0;
    }
    EXPECT_EQ(differences, 0);
    // A continuation takes up its sample's mask where it stands.
    const std::vector<std::int32_t> rest = {4}, from = {5};
    const std::vector<std::int64_t> sample = {12};
    const Matrix tail = mask(Segments(rest, sample, 4, from), 0.4f, 70);
    for (std::int64_t c = 0; c < 70; ++c) EXPECT_EQ(tail.at(0, c), packed.at(10, c));
  });
}

TEST(Dropout, DroppedNanIsZero) {
  const Segments segments(std::vector<std::int32_t>{64}, std::vector<std::int64_t>{1}, 64);
  Matrix x(DType::bf16, 64, 64);
  x.fill([](auto, auto) { return static_cast<double>(NAN); });
  dropout_apply(DType::bf16, *TestContext(), {x.view(), x.view(), 0.5f, kKey, &segments});
  for (std::int64_t r = 0; r < 64; ++r) {
    for (std::int64_t c = 0; c < 64; ++c) {
      if (kept(1, r, c, 0.5)) {
        EXPECT_TRUE(std::isnan(x.at(r, c)));
      } else {
        EXPECT_EQ(x.at(r, c), 0.0);
      }
    }
  }
}

}  // namespace
}  // namespace lode::test
