// Three forms, all made of attention's tile products (attention_tiles.h), whose operands are cells: pairs of
// values along the summed dimension.
//   outer     c [M, N] of few summed values: packed b stays in cache, c is written once
//   inner     c [M, few columns]: packed b stays in cache, rows of a are read as they lie
//   gradient  c = a^T b of few columns: a is read row by row and paired, a block of rows at a time
// The fourth, a^T b of few rows, is no slower in oneDNN.
#include "kernels/cpu/narrow_matmul.h"

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/attention_plan.h"
#include "kernels/cpu/ranges.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/narrow_matmul.cc"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace lode {
namespace HWY_NAMESPACE {
namespace {

// c = sums (+ c), row by row
void write_sums(const float* sums, std::int64_t sums_row, bool accumulate, View c) {
  for_type(c.dtype, [&](auto type) {
    using T = decltype(type);
    for (std::int64_t r = 0; r < c.rows; ++r) {
      T* out = c.row<T>(r);
      const float* from = sums + r * sums_row;
      if (accumulate) {
        for_vectors(c.cols, [&](std::int64_t i, auto part) LODE_LAMBDA {
          store(hn::Add(load(from + i, part), load(out + i, part)), out + i, part);
        });
      } else {
        for_vectors(c.cols, [&](std::int64_t i, auto part)
                                LODE_LAMBDA { store(quiet(load(from + i, part)), out + i, part); });
      }
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lode
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lode {
namespace {

HWY_EXPORT(write_sums);

constexpr std::int64_t kMostNarrow = 64, kLeastWide = 128;
constexpr std::int64_t kRows = 48;   // of a task of outer and inner
constexpr std::int64_t kStrip = 12;  // rows that inner multiplies at a time: they stay in the second cache

void write(const float* sums, std::int64_t sums_row, bool accumulate, View c) {
  HWY_DYNAMIC_DISPATCH(write_sums)(sums, sums_row, accumulate, c);
}

// Rows can be read as cells.
bool lies_in_cells(ConstView x) {
  return x.cols % 2 == 0 && (x.stride % 2 == 0 || x.rows <= 1) &&
         reinterpret_cast<std::uintptr_t>(x.data) % sizeof(Cell) == 0;
}

TileRows rows_of(ConstView x) {
  return {x.data, true, x.stride, x.rows, x.cols};
}

// op(b) as cells [K / 2, width], width beyond its columns.
void pack_b(const MatMul& p, std::int64_t width, Cell* out) {
  const TileKernels& tiles = *bf16_tiles();
  if (p.transpose_b) {
    tiles.pack_transposed(rows_of(p.b), p.b.cols, out, width);
  } else {
    tiles.pack_pairs(rows_of(p.b), width, out);
  }
}

// Calls body(rows begin, count, thread) for every task; op(b) lies packed meanwhile.
template <class Body>
void for_row_tasks(KernelContext& context, const MatMul& p, const Body& body) {
  // Rows of b a power of two apart would share few places of the cache.
  const std::int64_t width = round_up(p.c.cols, kTileLanes) + kTileLanes, tasks = ceil_div(p.c.rows, kRows);
  Workspace::Scope workspace(*context.workspace);
  Cell* b = workspace.take<Cell>(p.a.cols / 2 * width);
  parallel_for(1, 1, 1, [&](std::int64_t, std::int64_t) { pack_b(p, width, b); });
  parallel_tasks(context.threads, tasks, [&](std::int64_t task, int thread) {
    body(task * kRows, std::min(kRows, p.c.rows - task * kRows), b, width, thread);
  });
}

const Cell* cells_of(ConstView x, std::int64_t row) {
  return static_cast<const Cell*>(x.data) + row * x.stride / 2;
}

void outer(KernelContext& context, const MatMul& p) {
  for_row_tasks(context, p,
                [&](std::int64_t begin, std::int64_t count, const Cell* b, std::int64_t width, int) {
                  const View c = p.c.slice_rows(begin, count);
                  bf16_tiles()->update_rows({.depth = p.a.cols / 2,
                                             .a = cells_of(p.a, begin),
                                             .a_row = p.a.stride / 2,
                                             .b = b,
                                             .b_row = width,
                                             .c = {c.data, c.dtype == DType::bf16, c.stride, c.rows, c.cols},
                                             .add = p.accumulate});
                });
}

void inner(KernelContext& context, const MatMul& p) {
  const std::int64_t cols = round_up(p.c.cols, kTileLanes);
  Workspace::Scope workspace(*context.workspace);
  float* memory = workspace.take<float>(std::max(1, context.threads) * kStrip * cols);
  for_row_tasks(context, p,
                [&](std::int64_t begin, std::int64_t count, const Cell* b, std::int64_t width, int thread) {
                  float* sums = memory + thread * kStrip * cols;
                  for (std::int64_t r = begin; r < begin + count; r += kStrip) {
                    const std::int64_t rows = std::min(kStrip, begin + count - r);
                    bf16_tiles()->multiply({.rows = rows,
                                            .cols = cols,
                                            .depth = p.a.cols / 2,
                                            .a = cells_of(p.a, r),
                                            .a_row = p.a.stride / 2,
                                            .a_step = 1,
                                            .b = b,
                                            .b_row = width,
                                            .c = sums,
                                            .c_row = cols,
                                            .add = false});
                    write(sums, cols, p.accumulate, p.c.slice_rows(r, rows));
                  }
                });
}

constexpr std::int64_t kBlockRows = 64;  // summed rows that gradient pairs at a time
constexpr std::int64_t kLeastCols = 48;  // of a task of gradient

// c (+)= sums^T
void write_transposed(const float* sums, std::int64_t sums_row, bool accumulate, View c) {
  for (std::int64_t r = 0; r < c.rows; ++r) {
    float* out = c.row<float>(r);
    for (std::int64_t i = 0; i < c.cols; ++i) {
      const float value = sums[i * sums_row + r];
      out[i] = accumulate ? out[i] + value : value;
    }
  }
}

// Each sum adds the rows in their order, whatever columns a task has.
void gradient(KernelContext& context, const MatMul& p) {
  const TileKernels& tiles = *bf16_tiles();
  const std::int64_t b_width = round_up(p.b.cols, kTileLanes), threads = std::max(1, context.threads);
  const std::int64_t cols = std::max(round_up(ceil_div(p.a.cols, 2 * threads), kTileLanes), kLeastCols);
  // Rows of a block a power of two apart would share few places of the cache.
  const std::int64_t width = cols + kTileLanes, cells = kBlockRows / 2 * width;
  Workspace::Scope workspace(*context.workspace);
  Cell* b = workspace.take<Cell>(p.b.rows / 2 * b_width);
  Cell* blocks = workspace.take<Cell>(threads * cells);
  float* memory = workspace.take<float>(threads * p.b.cols * cols);
  parallel_for(1, 1, 1, [&](std::int64_t, std::int64_t) { tiles.pack_pairs(rows_of(p.b), b_width, b); });
  parallel_tasks(context.threads, ceil_div(p.a.cols, cols), [&](std::int64_t task, int thread) {
    const std::int64_t first = task * cols, count = std::min(cols, p.a.cols - first);
    Cell* block = blocks + thread * cells;
    float* sums = memory + thread * p.b.cols * cols;
    for (std::int64_t r = 0; r < p.a.rows; r += kBlockRows) {
      const std::int64_t rows = std::min(kBlockRows, p.a.rows - r);
      tiles.pack_pairs(rows_of(p.a.slice_rows(r, rows).slice_cols(first, count)), width, block);
      tiles.multiply({.rows = p.b.cols,
                      .cols = round_up(count, kTileLanes),
                      .depth = rows / 2,
                      .a = b + r / 2 * b_width,
                      .a_row = 1,
                      .a_step = b_width,
                      .b = block,
                      .b_row = width,
                      .c = sums,
                      .c_row = cols,
                      .add = r > 0});
    }
    write_transposed(sums, cols, p.accumulate, p.c.slice_rows(first, count));
  });
}

}  // namespace

bool narrow_fits(const MatMul& p) {
  const auto narrow = [](std::int64_t n) { return n <= kMostNarrow; };
  const auto wide = [](std::int64_t n) { return n >= kLeastWide; };
  if (p.a.dtype != DType::bf16 || p.b.dtype != DType::bf16 || p.bias.data != nullptr) return false;
  if (!bf16_matmul_path().native_bf16 || bf16_tiles() == nullptr) return false;
  if (p.transpose_a) {
    return !p.transpose_b && p.c.dtype == DType::f32 && p.a.rows % 2 == 0 && wide(p.a.rows) &&
           narrow(p.b.cols) && wide(p.a.cols);
  }
  if (!wide(p.c.rows) || !lies_in_cells(p.a)) return false;
  return (narrow(p.c.cols) && wide(p.a.cols)) || (narrow(p.a.cols) && wide(p.c.cols));
}

void narrow_matmul(KernelContext& context, const MatMul& p) {
  LODE_ASSERT(narrow_fits(p));
  if (p.transpose_a) return gradient(context, p);
  p.a.cols <= kMostNarrow ? outer(context, p) : inner(context, p);
}

}  // namespace lode
#endif  // HWY_ONCE
