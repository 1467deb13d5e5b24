#include "kernels/attention.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/format.h"
#include "core/rng.h"
#include "kernels/cpu/features.h"

namespace lode {
namespace {

using Values = std::vector<double>;  // row-major

// A matrix inside a wider one, with sentinels in the columns that do not belong to it.
struct Matrix {
  Matrix(DType type, std::int64_t num_rows, std::int64_t num_cols, std::int64_t gap = 8)
      : dtype(type), rows(num_rows), cols(num_cols), stride(num_cols + gap) {
    bytes.resize(static_cast<std::size_t>(rows * stride) * size_of(dtype));
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < stride; ++c) set(r, c, kSentinel);
    }
  }
  static constexpr float kSentinel = 77.0f;
  void set(std::int64_t r, std::int64_t c, float x) {
    if (dtype == DType::f32) {
      reinterpret_cast<float*>(bytes.data())[r * stride + c] = x;
    } else {
      reinterpret_cast<bf16*>(bytes.data())[r * stride + c] = to_bf16(x);
    }
  }
  double at(std::int64_t r, std::int64_t c) const {
    return dtype == DType::f32 ? reinterpret_cast<const float*>(bytes.data())[r * stride + c]
                               : to_f32(reinterpret_cast<const bf16*>(bytes.data())[r * stride + c]);
  }
  void fill(Rng& rng, float size) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) set(r, c, size * static_cast<float>(rng.next_normal()));
    }
  }
  View view() { return {bytes.data(), dtype, rows, cols, stride}; }
  bool gaps_intact() const {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = cols; c < stride; ++c) {
        if (at(r, c) != kSentinel) return false;
      }
    }
    return true;
  }

  DType dtype;
  std::int64_t rows, cols, stride;
  std::vector<std::byte> bytes;
};

struct Case {
  DType dtype = DType::f32;
  std::int64_t heads = 2, kv_heads = 1, head_dim = 16;
  std::vector<std::int32_t> lengths = {5};
  std::int32_t padding = 0;
  float size = 1;  // of queries and keys
  int threads = 1;
  std::int64_t window = 0;
};

std::string name_of(const Case& c) {
  std::string text =
      format("{} heads={}/{} dim={} size={} threads={} window={} padding={} lengths", name_of(c.dtype),
             c.heads, c.kv_heads, c.head_dim, c.size, c.threads, c.window, c.padding);
  for (const std::int32_t length : c.lengths) text += format(" {}", length);
  return text;
}

Segments make_segments(const Case& c) {
  std::vector<std::int64_t> samples;
  std::int32_t total = c.padding;
  for (const std::int32_t length : c.lengths) {
    samples.push_back(static_cast<std::int64_t>(samples.size()));
    total += length;
  }
  return Segments(c.lengths, samples, total);
}

struct Problem {
  explicit Problem(const Case& c, std::string_view stream = "attention")
      : shape{c.heads, c.kv_heads, c.head_dim, 1.0f / std::sqrt(static_cast<float>(c.head_dim)), c.window},
        segments(make_segments(c)),
        tokens(segments.num_tokens()),
        q(c.dtype, tokens, c.heads * c.head_dim),
        k(c.dtype, tokens, c.kv_heads * c.head_dim),
        v(c.dtype, tokens, c.kv_heads * c.head_dim),
        o(c.dtype, tokens, c.heads * c.head_dim),
        dout(c.dtype, tokens, c.heads * c.head_dim),
        dq(c.dtype, tokens, c.heads * c.head_dim),
        dk(c.dtype, tokens, c.kv_heads * c.head_dim),
        dv(c.dtype, tokens, c.kv_heads * c.head_dim),
        lse(DType::f32, c.heads, tokens) {
    Rng rng(11, stream);
    q.fill(rng, c.size);
    k.fill(rng, c.size);
    v.fill(rng, 1);
    dout.fill(rng, 1);
  }
  void forward(KernelContext& context) {
    attention_forward(q.dtype, context,
                      {.shape = shape,
                       .q = q.view(),
                       .k = k.view(),
                       .v = v.view(),
                       .segments = &segments,
                       .o = o.view(),
                       .lse = lse.view()});
  }
  void backward(KernelContext& context) {
    attention_backward(q.dtype, context,
                       {.shape = shape,
                        .q = q.view(),
                        .k = k.view(),
                        .v = v.view(),
                        .o = o.view(),
                        .lse = lse.view(),
                        .dout = dout.view(),
                        .segments = &segments,
                        .dq = dq.view(),
                        .dk = dk.view(),
                        .dv = dv.view()});
  }

  bool same_bits(const Problem& other) const {
    return o.bytes == other.o.bytes && lse.bytes == other.lse.bytes && dq.bytes == other.dq.bytes &&
           dk.bytes == other.dk.bytes && dv.bytes == other.dv.bytes;
  }

  AttentionShape shape;
  Segments segments;
  std::int64_t tokens;
  Matrix q, k, v, o, dout, dq, dk, dv, lse;
};

struct Expected {
  Values o, lse, dq, dk, dv;
};

// Straight from the formulas, in double.
Expected naive(const Problem& p) {
  const std::int64_t dim = p.shape.head_dim, group = p.shape.heads / p.shape.kv_heads;
  const auto zeros = [](const Matrix& like) {
    return Values(static_cast<std::size_t>(like.rows * like.cols));
  };
  Expected e{zeros(p.o), zeros(p.lse), zeros(p.q), zeros(p.k), zeros(p.v)};
  const auto at = [](Values& x, const Matrix& like, std::int64_t r, std::int64_t c) -> double& {
    return x[static_cast<std::size_t>(r * like.cols + c)];
  };
  for (const Segment& segment : p.segments.list()) {
    if (segment.padding) continue;
    for (std::int64_t h = 0; h < p.shape.heads; ++h) {
      const std::int64_t hq = h * dim, hk = h / group * dim;
      for (std::int64_t i = segment.begin; i < segment.begin + segment.length; ++i) {
        const std::int64_t seen = i - segment.begin + 1, window = p.shape.window;
        const auto n = static_cast<std::size_t>(window == 0 ? seen : std::min(seen, window));
        const std::int64_t first = i + 1 - static_cast<std::int64_t>(n);
        Values s(n), prob(n), dp(n);
        double top = -1e300, sum = 0, delta = 0;
        for (std::size_t j = 0; j < n; ++j) {
          const std::int64_t key = first + static_cast<std::int64_t>(j);
          for (std::int64_t c = 0; c < dim; ++c) {
            s[j] += p.shape.scale * p.q.at(i, hq + c) * p.k.at(key, hk + c);
            dp[j] += p.dout.at(i, hq + c) * p.v.at(key, hk + c);
          }
          top = std::max(top, s[j]);
        }
        for (std::size_t j = 0; j < n; ++j) sum += std::exp(s[j] - top);
        at(e.lse, p.lse, h, i) = top + std::log(sum);
        for (std::size_t j = 0; j < n; ++j) {
          prob[j] = std::exp(s[j] - top) / sum;
          delta += prob[j] * dp[j];
        }
        for (std::size_t j = 0; j < n; ++j) {
          const std::int64_t key = first + static_cast<std::int64_t>(j);
          const double ds = prob[j] * (dp[j] - delta) * p.shape.scale;
          for (std::int64_t c = 0; c < dim; ++c) {
            at(e.o, p.o, i, hq + c) += prob[j] * p.v.at(key, hk + c);
            at(e.dv, p.dv, key, hk + c) += prob[j] * p.dout.at(i, hq + c);
            at(e.dq, p.dq, i, hq + c) += ds * p.k.at(key, hk + c);
            at(e.dk, p.dk, key, hk + c) += ds * p.q.at(i, hq + c);
          }
        }
      }
    }
  }
  return e;
}

// Largest difference, by the size of the expected values; and overruns.
double error_of(const Matrix& x, const Values& expected) {
  EXPECT_TRUE(x.gaps_intact());
  double largest = 0, square = 0;
  for (const double y : expected) square += y * y;
  const double size = std::sqrt(square / static_cast<double>(expected.size())) + 0.1;
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t c = 0; c < x.cols; ++c) {
      const double y = expected[static_cast<std::size_t>(r * x.cols + c)];
      const double difference = std::abs(x.at(r, c) - y) / (size + std::abs(y));
      largest = std::isnan(difference) ? 1e300 : std::max(largest, difference);
    }
  }
  return largest;
}

class AttentionTest : public ::testing::Test {
 protected:
  AttentionTest() : workspace_(memory_) {}

  void check(const Case& c) {
    SCOPED_TRACE(name_of(c));
    Problem p(c);
    KernelContext context{c.threads, &workspace_};
    p.forward(context);
    p.backward(context);
    const Expected expected = naive(p);
    const double tolerance = (c.dtype == DType::f32 ? 1e-5 : 2e-2) * (1 + c.size * c.size / 10);
    EXPECT_LT(error_of(p.o, expected.o), tolerance);
    EXPECT_LT(error_of(p.lse, expected.lse), c.dtype == DType::f32 ? 1e-5 : 1e-4);
    EXPECT_LT(error_of(p.dv, expected.dv), tolerance);
    EXPECT_LT(error_of(p.dq, expected.dq), 2 * tolerance);
    EXPECT_LT(error_of(p.dk, expected.dk), 2 * tolerance);
  }

  Memory memory_;
  Workspace workspace_;
};

TEST_F(AttentionTest, HeadDimensions) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t dim : {8, 12, 16, 24, 32, 48, 64, 80, 96, 128, 256}) {
      check({.dtype = dtype, .head_dim = dim, .lengths = {70, 33}, .threads = 2});
    }
  }
}

TEST_F(AttentionTest, SegmentLengths) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int32_t length : {1, 2, 3, 15, 16, 17, 63, 64, 65, 127, 128, 129, 300}) {
      check({.dtype = dtype, .head_dim = 24, .lengths = {length}});
    }
    check({.dtype = dtype,
           .heads = 4,
           .kv_heads = 2,
           .lengths = {1, 2, 127, 128, 129, 300},
           .padding = 81,
           .threads = 2});
    check({.dtype = dtype, .lengths = std::vector<std::int32_t>(40, 1), .padding = 3});
  }
}
TEST_F(AttentionTest, EverySimdTarget) {
  for (const std::string& target : available_simd_targets()) {
    SCOPED_TRACE(target);
    force_simd_target(target);
    for (const std::int64_t dim : {8, 64, 80})
      check({.head_dim = dim, .lengths = {70, 33, 129}, .threads = 2});
  }
  force_simd_target("");
}

TEST_F(AttentionTest, Groups) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (std::int64_t group = 1; group <= 8; ++group) {
      check({.dtype = dtype,
             .heads = 2 * group,
             .kv_heads = 2,
             .head_dim = 32,
             .lengths = {90, 5},
             .threads = 2});
    }
  }
}

TEST_F(AttentionTest, Windows) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t window : {1, 2, 5, 16, 33, 63, 64, 65, 128, 199, 300, 1000}) {
      check({.dtype = dtype, .head_dim = 24, .lengths = {1, 300, 70}, .padding = 13, .window = window});
    }
    check({.dtype = dtype, .heads = 1, .head_dim = 64, .lengths = {450}, .threads = 3, .window = 100});
    check({.dtype = dtype, .heads = 4, .head_dim = 256, .lengths = {200, 9}, .threads = 2, .window = 37});
  }
}

TEST_F(AttentionTest, AWindowAsLongAsTheSegmentChangesNoBit) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Case c{.dtype = dtype, .lengths = {200, 64}};
    Problem plain(c);
    c.window = 200;
    Problem windowed(c);
    KernelContext context{2, &workspace_};
    plain.forward(context), plain.backward(context);
    windowed.forward(context), windowed.backward(context);
    EXPECT_TRUE(plain.same_bits(windowed));
  }
}

TEST_F(AttentionTest, LargeLogits) {
  check({.dtype = DType::f32, .lengths = {150, 20}, .size = 10});
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Problem p({.dtype = dtype, .head_dim = 16, .lengths = {200}, .size = 60});  // logits around +-1e4
    KernelContext context{1, &workspace_};
    p.forward(context);
    p.backward(context);
    const Expected expected = naive(p);
    EXPECT_LT(error_of(p.o, expected.o), 2e-2);
    EXPECT_LT(error_of(p.lse, expected.lse), 1e-4);
    for (const Matrix* x : {&p.dq, &p.dk, &p.dv}) {
      for (std::int64_t r = 0; r < x->rows; ++r) {
        for (std::int64_t c = 0; c < x->cols; ++c) ASSERT_TRUE(std::isfinite(x->at(r, c)));
      }
    }
  }
}

TEST_F(AttentionTest, PaddingIsZeroAndOnlyPaddingWorks) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Problem p({.dtype = dtype, .lengths = {3}, .padding = 61});
    KernelContext context{2, &workspace_};
    p.forward(context);
    p.backward(context);
    for (const Matrix* x : {&p.o, &p.dq, &p.dk, &p.dv}) {
      for (std::int64_t r = 3; r < x->rows; ++r) {
        for (std::int64_t c = 0; c < x->cols; ++c) ASSERT_EQ(x->at(r, c), 0.0);
      }
    }
    Problem only({.dtype = dtype, .lengths = {}, .padding = 128});
    only.forward(context);
    only.backward(context);
    EXPECT_EQ(only.o.at(127, 31), 0.0);
    EXPECT_EQ(only.dk.at(0, 0), 0.0);
  }
}

// One head on two threads takes the schedule by tiles, on one thread the schedule by heads.
TEST_F(AttentionTest, ThreadsDoNotChangeABit) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t kv_heads : {1, 2, 5}) {
      for (const std::int64_t window : {0, 70}) {
        const Case c{.dtype = dtype,
                     .heads = 2 * kv_heads,
                     .kv_heads = kv_heads,
                     .head_dim = 40,
                     .lengths = {333, 64, 7},
                     .window = window};
        Problem one(c), many(c);
        KernelContext single{1, &workspace_};
        one.forward(single);
        one.backward(single);
        for (const int threads : {2, 3, 16}) {
          KernelContext several{threads, &workspace_};
          many.forward(several);
          many.backward(several);
          EXPECT_TRUE(one.same_bits(many)) << threads;
        }
      }
    }
  }
}

void copy_rows(const Matrix& from, std::int64_t first, Matrix& to) {
  const std::size_t row = static_cast<std::size_t>(from.stride) * size_of(from.dtype);
  std::memcpy(to.bytes.data(), from.bytes.data() + static_cast<std::size_t>(first) * row, to.bytes.size());
}

bool same_rows(const Matrix& whole, std::int64_t first, const Matrix& part) {
  const std::size_t row = static_cast<std::size_t>(whole.stride) * size_of(whole.dtype);
  return std::memcmp(part.bytes.data(), whole.bytes.data() + static_cast<std::size_t>(first) * row,
                     part.bytes.size()) == 0;
}

TEST_F(AttentionTest, PackedEqualsSeparateInEveryBit) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Case c{.dtype = dtype,
           .heads = 6,
           .kv_heads = 2,
           .head_dim = 24,
           .lengths = {37, 1, 200, 65},
           .padding = 81};
    Problem packed(c);
    KernelContext context{2, &workspace_};
    packed.forward(context);
    packed.backward(context);
    for (const Segment& segment : packed.segments.list()) {
      if (segment.padding) continue;
      c.lengths = {segment.length};
      c.padding = 0;
      Problem alone(c);
      copy_rows(packed.q, segment.begin, alone.q);
      copy_rows(packed.k, segment.begin, alone.k);
      copy_rows(packed.v, segment.begin, alone.v);
      copy_rows(packed.dout, segment.begin, alone.dout);
      alone.forward(context);
      alone.backward(context);
      EXPECT_TRUE(same_rows(packed.o, segment.begin, alone.o));
      EXPECT_TRUE(same_rows(packed.dq, segment.begin, alone.dq));
      EXPECT_TRUE(same_rows(packed.dk, segment.begin, alone.dk));
      EXPECT_TRUE(same_rows(packed.dv, segment.begin, alone.dv));
    }
  }
}

TEST_F(AttentionTest, BackwardMatchesFiniteDifferences) {
  const Case c{.heads = 4, .kv_heads = 2, .head_dim = 8, .lengths = {6, 3}};
  Problem p(c);
  KernelContext context{1, &workspace_};
  p.forward(context);
  p.backward(context);
  const auto loss = [&] {
    p.forward(context);
    double sum = 0;
    for (std::int64_t r = 0; r < p.tokens; ++r) {
      for (std::int64_t col = 0; col < p.o.cols; ++col) sum += p.o.at(r, col) * p.dout.at(r, col);
    }
    return sum;
  };
  constexpr float kStep = 1.0f / 128;
  for (const auto& [x, dx] : {std::pair{&p.q, &p.dq}, {&p.k, &p.dk}, {&p.v, &p.dv}}) {
    for (std::int64_t r = 0; r < p.tokens; r += 2) {
      for (std::int64_t col = 0; col < x->cols; col += 5) {
        const auto middle = static_cast<float>(x->at(r, col));
        x->set(r, col, middle + kStep);
        const double above = loss();
        x->set(r, col, middle - kStep);
        const double below = loss();
        x->set(r, col, middle);
        EXPECT_NEAR(dx->at(r, col), (above - below) / (2 * kStep), 2e-3) << r << ", " << col;
      }
    }
  }
}

TEST_F(AttentionTest, DecodeEqualsForward) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const auto& [dim, window] : {std::pair{8, 0}, {40, 0}, {64, 0}, {24, 1}, {24, 70}, {256, 5}}) {
      const Case c{
          .dtype = dtype, .heads = 6, .kv_heads = 2, .head_dim = dim, .lengths = {150}, .window = window};
      Problem p(c);
      KernelContext context{2, &workspace_};
      p.forward(context);
      for (const std::int64_t fresh : {1, 2, 7, 8, 60, 149, 150}) {
        Matrix o(dtype, fresh, p.o.cols);
        attention_decode(dtype, context,
                         {.shape = p.shape,
                          .q = p.q.view().slice_rows(150 - fresh, fresh),
                          .k = p.k.view(),
                          .v = p.v.view(),
                          .o = o.view()});
        Values expected;
        for (std::int64_t r = 150 - fresh; r < 150; ++r) {
          for (std::int64_t col = 0; col < p.o.cols; ++col) expected.push_back(p.o.at(r, col));
        }
        EXPECT_LT(error_of(o, expected), dtype == DType::f32 ? 2e-5 : 2e-2)
            << dim << " " << window << " " << fresh;
      }
    }
  }
}

TEST_F(AttentionTest, NotANumberIsNotSwallowed) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Problem p({.dtype = dtype, .lengths = {20}});
    p.k.set(4, 0, std::nanf(""));
    KernelContext context{1, &workspace_};
    p.forward(context);
    p.backward(context);
    EXPECT_TRUE(std::isfinite(p.o.at(3, 0)));
    EXPECT_TRUE(std::isnan(p.o.at(4, 0)));
    EXPECT_TRUE(std::isnan(p.dq.at(4, 0)));
  }
}

// The same tests without bf16 dot products, as on machines that have none.
TEST(AttentionForced, Avx2) {
  if (std::getenv("ONEDNN_MAX_CPU_ISA") != nullptr) GTEST_SKIP() << "already restricted";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
    execl("/proc/self/exe", "kernels_tests", "--gtest_filter=AttentionTest.*", "--gtest_brief=1", nullptr);
    _exit(127);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace lode
