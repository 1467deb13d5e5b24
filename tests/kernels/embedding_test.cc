#include "kernels/embedding.h"

#include "kernels/kernel_test.h"

namespace lode::test {
namespace {

// Few ids are common, as in text: an id below 300, often the same.
std::vector<std::int32_t> draw_ids(std::int64_t count, Rng& rng) {
  std::vector<std::int32_t> ids;
  for (std::int64_t t = 0; t < count; ++t) {
    ids.push_back(static_cast<std::int32_t>(rng.next_uniform() < 0.3 ? 258 : rng.below(300)));
  }
  return ids;
}

template <DType table_dtype, bool add>
struct ForwardCase {
  static constexpr float kScale = 1.5f;
  std::vector<std::int32_t> ids;
  Matrix table, y, before;
  ForwardCase(const Make& m, Rng& rng)
      : ids(draw_ids(m.shape.rows, rng)),
        table(table_dtype, 300, m.shape.cols, m.gap),
        y(m.dtype, m.shape.rows, m.shape.cols, m.gap) {
    table.fill_normal(rng);
    y.fill_normal(rng);
    before = y;
  }
  void run(KernelContext& context) {
    embedding_forward(y.dtype(), context, ids, table.view(), kScale, add, y.view());
  }
  void check() const {
    const auto want = [&](std::int64_t r, std::int64_t c) {
      const double value = static_cast<double>(kScale) * table.at(ids[static_cast<std::size_t>(r)], c);
      return value + (add ? before.at(r, c) : 0.0);
    };
    expect_near(y, want, tolerance_of(y.dtype(), 5e-7), "y");
  }
  std::vector<const Matrix*> outputs() const { return {&y}; }
};

TEST(Embedding, ForwardFromF32) {
  check_kernel<ForwardCase<DType::f32, false>>();
}
TEST(Embedding, ForwardFromBf16) {
  check_kernel<ForwardCase<DType::bf16, false>>();
}
TEST(Embedding, ForwardAdds) {
  check_kernel<ForwardCase<DType::f32, true>>();
}
TEST(Embedding, ForwardAddsBf16) {
  check_kernel<ForwardCase<DType::bf16, true>>();
}

template <std::int64_t vocabulary>
struct BackwardCase {
  static constexpr float kScale = 0.5f;
  std::vector<std::int32_t> ids;
  Matrix dy, dtable, before;
  BackwardCase(const Make& m, Rng& rng)
      : ids(draw_ids(m.shape.rows, rng)),
        dy(m.dtype, m.shape.rows, m.shape.cols, m.gap),
        dtable(DType::f32, vocabulary, m.shape.cols, m.gap) {
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(id * (vocabulary - 1) / 299);
    dy.fill_normal(rng);
    dtable.fill_normal(rng);
    before = dtable;
  }
  void run(KernelContext& context) {
    embedding_backward(dy.dtype(), context, ids, dy.view(), kScale, dtable.view());
  }
  // The contract fixes the order of additions, so the result is exact.
  void check() const {
    Matrix want = before;
    for (std::size_t t = 0; t < ids.size(); ++t) {
      for (std::int64_t c = 0; c < dy.cols(); ++c) {
        const auto sum =
            std::fma(static_cast<double>(kScale), dy.at(static_cast<std::int64_t>(t), c), want.at(ids[t], c));
        want.set(ids[t], c, sum);
      }
    }
    expect_near(
        dtable, [&](auto r, auto c) { return want.at(r, c); }, {0, 0}, "dtable");
  }
  std::vector<const Matrix*> outputs() const { return {&dtable}; }
};

TEST(Embedding, Backward) {
  check_kernel<BackwardCase<300>>();
}
TEST(Embedding, BackwardOfManyIds) {
  check_kernel<BackwardCase<70000>>({{65, 3}, {301, 9}});
}
TEST(Embedding, BackwardOfOneId) {
  check_kernel<BackwardCase<1>>({{1, 1}, {130, 257}});
}

}  // namespace
}  // namespace lode::test
