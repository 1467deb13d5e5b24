// What optimizers of matrices share: sums of squares along rows and columns, and the update scaled by them.
#include "kernels/cpu/optimizer_blocks.h"
#include "kernels/optimizer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer_matrix.cc"
#include "kernels/cpu/weight_simd.h"

HWY_BEFORE_NAMESPACE();
namespace lode {
namespace HWY_NAMESPACE {
namespace {

template <bool has_col>
void update(const WeightUpdate& a, const Blocks::Block& at) {
  const float* change = a.update.row<float>(at.row) + at.begin;
  const float* col = has_col ? a.col + at.begin : nullptr;
  const float before = static_cast<float>(a.before * a.after);
  const float rate = static_cast<float>(a.rate * a.after * (a.row == nullptr ? 1.0 : a.row[at.row]));
  for_weights(a.weight, at, [&](std::int64_t i, auto part, V weight) LODE_LAMBDA {
    V u = load(change + i, part);
    if constexpr (has_col) u = hn::Mul(u, load(col + i, part));
    return hn::NegMulAdd(set(rate), u, hn::Mul(set(before), weight));
  });
}

void update_block(const WeightUpdate& a, const Blocks::Block& at) {
  a.col == nullptr ? update<false>(a, at) : update<true>(a, at);
}

template <class T>
void combine_as(const Combination& a, const Blocks::Block& at) {
  const T* x = a.x.data == nullptr ? nullptr : a.x.row<T>(at.row) + at.begin;
  const float* y = a.y.row<float>(at.row) + at.begin;
  T* out = a.out.row<T>(at.row) + at.begin;
  const float x_factor = static_cast<float>(a.x_factor), y_factor = static_cast<float>(a.y_factor);
  for_vectors(at.n, [&](std::int64_t i, auto part) LODE_LAMBDA {
    V sum = hn::Mul(set(y_factor), load(y + i, part));
    if (x != nullptr) sum = hn::MulAdd(set(x_factor), load(x + i, part), sum);
    store(sum, out + i, part);
  });
}

void combine_block(const Combination& a, const Blocks::Block& at) {
  a.out.dtype == DType::bf16 ? combine_as<bf16>(a, at) : combine_as<float>(a, at);
}

float squares_of_row(const float* x, const float* col, std::int64_t n) {
  Accumulators sums;
  for_vectors_4(n, [&](std::int64_t i, auto part, auto slot) LODE_LAMBDA {
    V v = load(x + i, part);
    if (col != nullptr) v = hn::Mul(v, load(col + i, part));
    sums[slot] = hn::MulAdd(v, v, sums[slot]);
  });
  return sums.sum();
}

// out[c] <- sum of squares of rows [begin, end).
void squares_of_rows(ConstView x, std::int64_t begin, std::int64_t end, float* out) {
  for (std::int64_t r = begin; r < end; ++r) {
    const float* row = x.row<float>(r);
    for_vectors(x.cols, [&](std::int64_t i, auto part) LODE_LAMBDA {
      const V v = load(row + i, part);
      store(r == begin ? hn::Mul(v, v) : hn::MulAdd(v, v, load(out + i, part)), out + i, part);
    });
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lode
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lode {

HWY_EXPORT(update_block);
HWY_EXPORT(combine_block);
HWY_EXPORT(squares_of_row);
HWY_EXPORT(squares_of_rows);

void update_weights(KernelContext& context, const WeightUpdate& a) {
  const auto step = HWY_DYNAMIC_DISPATCH(update_block);
  if (a.row == nullptr && a.col == nullptr) {
    return for_blocks(context, blocks_of(a.weight, {a.update, ConstView{}, ConstView{}}),
                      [&](const Blocks::Block& at) { step(a, at); });
  }
  const std::int64_t cols = a.update.cols;
  for_rows(context, a.update.rows, cols, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) step(a, {r, 0, cols});
  });
}

void combine(KernelContext& context, const Combination& a) {
  const auto step = HWY_DYNAMIC_DISPATCH(combine_block);
  for_blocks(context, Blocks{or_other(a.x, a.y), a.y, a.out}, [&](const Blocks::Block& at) { step(a, at); });
}

void row_squares(KernelContext& context, ConstView x, float* out) {
  const auto squares = HWY_DYNAMIC_DISPATCH(squares_of_row);
  for_rows(context, x.rows, x.cols, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) out[r] = squares(x.row<float>(r), nullptr, x.cols);
  });
}

void col_squares(KernelContext& context, ConstView x, float* out) {
  const std::int64_t blocks = ceil_div(x.rows, kReduceRows);
  Workspace::Scope workspace(*context.workspace);
  float* partials = workspace.take<float>(blocks * x.cols);
  const auto squares = HWY_DYNAMIC_DISPATCH(squares_of_rows);
  parallel_for(context.threads, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      squares(x, b * kReduceRows, std::min(x.rows, (b + 1) * kReduceRows), partials + b * x.cols);
    }
  });
  add_partials(context, partials, blocks, x.cols, false, out);
}

double scaled_squares(KernelContext& context, ConstView x, const float* row, const float* col) {
  Workspace::Scope workspace(*context.workspace);
  double* sums = workspace.take<double>(x.rows);
  const auto squares = HWY_DYNAMIC_DISPATCH(squares_of_row);
  for_rows(context, x.rows, x.cols, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const double factor = row == nullptr ? 1.0 : row[r];
      sums[r] = factor * factor * squares(x.row<float>(r), col, x.cols);
    }
  });
  double total = 0;
  for (std::int64_t r = 0; r < x.rows; ++r) total += sums[r];
  return total;
}

}  // namespace lode
#endif  // HWY_ONCE
