// Three forms, all made of attention's tile products (attention_tiles.h), whose operands are cells: pairs of
// values along the summed dimension.
//   outer     c [M, N] of few summed values: packed b stays in cache, c is written once
//   inner     c [M, few columns]: packed b stays in cache, rows of a are read as they lie
//   gradient  a^T b, one of them narrow: the wide one is packed block by block
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
constexpr std::int64_t kDepth = 32;  // rows of the wide matrix that gradient packs at a time

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

std::int64_t summed(const MatMul& p) {
  return p.transpose_a ? p.a.rows : p.a.cols;
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

// The memory of a thread in gradient.
struct Scratch {
  Cell* block;    // [kDepth / 2, cols]
  float* sums;    // [narrow, cols]
  float* turned;  // [cols, narrow]
};

// Columns [begin, begin + count) of the wide operand.
void multiply_columns(const MatMul& p, const Cell* narrow, std::int64_t narrow_width, std::int64_t begin,
                      std::int64_t count, const Scratch& scratch) {
  const bool a_is_narrow = p.a.cols <= p.b.cols;
  const ConstView wide = (a_is_narrow ? p.b : p.a).slice_cols(begin, count);
  const std::int64_t few = std::min(p.a.cols, p.b.cols), cols = round_up(count, kTileLanes);
  for (std::int64_t t = 0; t < wide.rows; t += kDepth) {
    const std::int64_t rows = std::min(kDepth, wide.rows - t);
    bf16_tiles()->pack_pairs(rows_of(wide.slice_rows(t, rows)), cols, scratch.block);
    bf16_tiles()->multiply({.rows = few,
                            .cols = cols,
                            .depth = (rows + 1) / 2,
                            .a = narrow + t / 2 * narrow_width,
                            .a_row = 1,
                            .a_step = narrow_width,
                            .b = scratch.block,
                            .b_row = cols,
                            .c = scratch.sums,
                            .c_row = cols,
                            .add = t > 0});
  }
  if (a_is_narrow) return write(scratch.sums, cols, p.accumulate, p.c.slice_cols(begin, count));
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t j = 0; j < few; ++j) scratch.turned[i * few + j] = scratch.sums[j * cols + i];
  }
  write(scratch.turned, few, p.accumulate, p.c.slice_rows(begin, count));
}

// Columns are independent of each other, so they may be shared out in pieces as long as there are threads
// for.
void gradient(KernelContext& context, const MatMul& p) {
  constexpr std::int64_t kMostCols = 1024;
  const ConstView few = p.a.cols <= p.b.cols ? p.a : p.b;
  const std::int64_t width = round_up(few.cols, kTileLanes), wide = std::max(p.a.cols, p.b.cols);
  const std::int64_t threads = std::max(1, context.threads);
  const std::int64_t cols = std::min(kMostCols, round_up(ceil_div(wide, threads), kTileLanes));
  Workspace::Scope workspace(*context.workspace);
  Cell* narrow = workspace.take<Cell>(ceil_div(few.rows, 2) * width);
  auto* scratch = workspace.take<Scratch>(threads);
  for (std::int64_t t = 0; t < threads; ++t) {
    scratch[t] = {workspace.take<Cell>(kDepth / 2 * cols), workspace.take<float>(few.cols * cols),
                  workspace.take<float>(few.cols * cols)};
  }
  parallel_for(1, 1, 1,
               [&](std::int64_t, std::int64_t) { bf16_tiles()->pack_pairs(rows_of(few), width, narrow); });
  parallel_tasks(static_cast<int>(threads), ceil_div(wide, cols), [&](std::int64_t task, int thread) {
    const std::int64_t begin = task * cols;
    multiply_columns(p, narrow, width, begin, std::min(cols, wide - begin), scratch[thread]);
  });
}

}  // namespace

bool narrow_fits(const MatMul& p) {
  const auto narrow = [](std::int64_t n) { return n <= kMostNarrow; };
  const auto wide = [](std::int64_t n) { return n >= kLeastWide; };
  if (p.a.dtype != DType::bf16 || p.b.dtype != DType::bf16 || p.bias.data != nullptr) return false;
  if (!bf16_matmul_path().native_bf16 || bf16_tiles() == nullptr) return false;
  if (p.transpose_a) {
    return !p.transpose_b && wide(p.a.rows) && narrow(std::min(p.a.cols, p.b.cols)) &&
           wide(std::max(p.a.cols, p.b.cols));
  }
  if (!wide(p.c.rows) || !lies_in_cells(p.a)) return false;
  return (narrow(p.c.cols) && wide(summed(p))) || (narrow(summed(p)) && wide(p.c.cols));
}

void narrow_matmul(KernelContext& context, const MatMul& p) {
  LODE_ASSERT(narrow_fits(p));
  if (p.transpose_a) return gradient(context, p);
  summed(p) <= kMostNarrow ? outer(context, p) : inner(context, p);
}

}  // namespace lode
#endif  // HWY_ONCE
