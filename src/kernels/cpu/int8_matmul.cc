// Products with int8 weights: panels of the weights are packed as they are used, which costs a few
// hundredths of the product of many rows and keeps the weights in one plain form for both directions.
#include "kernels/int8_matmul.h"

#include <algorithm>

#include "kernels/cpu/int8_tiles.h"
#include "kernels/cpu/ranges.h"

namespace lode {
namespace {

// Most rows of `a` that a panel serves before it is packed anew: their partial sums stay in a core's cache.
constexpr std::int64_t kTaskRows = 85 * kStripRows;
// Blocks that are packed and multiplied together: their panel stays in a core's cache.
constexpr std::int64_t kGroupBlocks = 8;
// What packing a panel costs, in rows multiplied with it.
constexpr std::int64_t kPackRows = 8;

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return ceil_div(n, multiple) * multiple;
}

// How the summed dimension is cut.
struct Depth {
  std::int64_t values, length, blocks;
  explicit Depth(std::int64_t k) : values(k) {
    length = round_up(ceil_div(k, ceil_div(k, kInt8Depth)), 4);
    blocks = ceil_div(k, length);
  }
  std::int64_t begin(std::int64_t block) const { return block * length; }
  std::int64_t count(std::int64_t block) const { return std::min(length, values - begin(block)); }
};

// Rows of a task, such that the last threads end at about the same time. Results do not depend on it.
std::int64_t rows_of_task(std::int64_t rows, std::int64_t panels, int threads) {
  const std::int64_t strips = ceil_div(rows, kStripRows), fewest = ceil_div(rows, kTaskRows);
  std::int64_t best = 0, best_cost = 0;
  for (std::int64_t parts = fewest; parts <= std::min(strips, fewest + 3); ++parts) {
    const std::int64_t size = ceil_div(strips, parts) * kStripRows;
    const std::int64_t cost = ceil_div(panels * ceil_div(rows, size), threads) * (size + kPackRows);
    if (best == 0 || cost < best_cost) best = size, best_cost = cost;
  }
  return best;
}

// The left operand: rows padded with zeros to whole strips and quads.
struct Quantized {
  std::int64_t row_bytes = 0;
  std::int8_t* q = nullptr;
  float* scale = nullptr;          // [rows, blocks]
  std::int32_t* offset = nullptr;  // [rows, blocks]
};

Quantized quantize_left(const Int8Tiles& tiles, KernelContext& context, Workspace::Scope& scope,
                        const Int8MatMul& p, const Depth& depth) {
  const std::int64_t rows = round_up(p.a.rows, kStripRows);
  Quantized out;
  // An odd number of cache lines: the rows of a strip lie in different sets of a cache.
  out.row_bytes = (round_up(depth.values, 64) / 64 | 1) * 64;
  out.q = scope.take<std::int8_t>(rows * out.row_bytes);
  out.scale = scope.take<float>(rows * depth.blocks);
  out.offset = scope.take<std::int32_t>(rows * depth.blocks);
  const std::int64_t width = static_cast<std::int64_t>(size_of(p.a.dtype));
  for_rows(context, rows, depth.values, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      std::int8_t* q = out.q + r * out.row_bytes;
      if (r >= p.a.rows) {
        std::fill_n(q, out.row_bytes, std::int8_t{0});
        std::fill_n(out.scale + r * depth.blocks, depth.blocks, 0.0f);
        std::fill_n(out.offset + r * depth.blocks, depth.blocks, 0);
        continue;
      }
      const auto* x = static_cast<const std::byte*>(p.a.data) + r * p.a.stride * width;
      for (std::int64_t block = 0; block < depth.blocks; ++block) {
        const std::int64_t at = depth.begin(block);
        tiles.quantize({.x = x + at * width,
                        .is_bf16 = p.a.dtype == DType::bf16,
                        .factors = p.transpose_b ? nullptr : p.b.scale + at,
                        .n = depth.count(block),
                        .q = q + at,
                        .scale = out.scale + r * depth.blocks + block,
                        .offset = out.offset + r * depth.blocks + block});
      }
      std::fill(q + depth.values, q + round_up(depth.values, 4), std::int8_t{0});
    }
  });
  return out;
}

// Values [begin, begin + count) of the summed dimension, columns [col, col + cols).
void pack_panel(const Int8Tiles& tiles, const Int8MatMul& p, std::int64_t begin, std::int64_t count,
                std::int64_t col, std::int64_t cols, std::uint8_t* panel) {
  if (p.transpose_b) {
    tiles.pack_rows({p.b.data + col * p.b.stride + begin, p.b.stride, cols, count}, panel);
  } else {
    tiles.pack_cols({p.b.data + begin * p.b.stride + col, p.b.stride, count, cols}, panel);
  }
}

void check(const Int8MatMul& p) {
  const std::int64_t depth = p.transpose_b ? p.b.cols : p.b.rows, n = p.transpose_b ? p.b.rows : p.b.cols;
  if (p.a.cols != depth || p.c.rows != p.a.rows || p.c.cols != n) {
    fail(ErrorKind::internal, "int8_matmul: shapes do not fit: [{}, {}] x [{}, {}] -> [{}, {}]", p.a.rows,
         p.a.cols, depth, n, p.c.rows, p.c.cols);
  }
  const auto is_float = [](DType dtype) { return dtype == DType::f32 || dtype == DType::bf16; };
  LODE_ASSERT(is_float(p.a.dtype) && is_float(p.c.dtype));
  LODE_ASSERT(p.bias.data == nullptr || (p.bias.dtype == DType::f32 && p.bias.rows == 1 && p.bias.cols == n));
}

}  // namespace

void int8_matmul_with(const Int8Tiles& tiles, KernelContext& context, const Int8MatMul& p) {
  check(p);
  if (p.c.empty()) return;
  LODE_ASSERT(p.a.cols > 0);
  const Depth depth(p.a.cols);
  Workspace::Scope scope(*context.workspace);
  const Quantized left = quantize_left(tiles, context, scope, p, depth);
  const std::int64_t panels = ceil_div(p.c.cols, kPanelCols);
  const std::int64_t task_rows = rows_of_task(p.a.rows, panels, context.threads);
  const std::int64_t row_tasks = ceil_div(p.a.rows, task_rows);
  const std::int64_t group = depth.length * kGroupBlocks, panel_bytes = group * kPanelCols;
  auto* packed = scope.take<std::uint8_t>(context.threads * panel_bytes);
  float* partials = scope.take<float>(context.threads * task_rows * kPanelCols);
  parallel_tasks(context.threads, panels * row_tasks, [&](std::int64_t task, int thread) {
    const std::int64_t col = task / row_tasks * kPanelCols, row = task % row_tasks * task_rows;
    const std::int64_t cols = std::min(kPanelCols, p.c.cols - col),
                       rows = std::min(task_rows, p.a.rows - row);
    std::uint8_t* panel = packed + thread * panel_bytes;
    float* partial = partials + thread * task_rows * kPanelCols;
    for (std::int64_t block = 0; block < depth.blocks; block += kGroupBlocks) {
      const std::int64_t begin = depth.begin(block), count = std::min(group, depth.values - begin);
      pack_panel(tiles, p, begin, count, col, cols, panel);
      tiles.multiply({.strips = ceil_div(rows, kStripRows),
                      .quads = ceil_div(count, 4),
                      .block_quads = depth.length / 4,
                      .a = left.q + row * left.row_bytes + begin,
                      .a_row = left.row_bytes,
                      .scale = left.scale + row * depth.blocks + block,
                      .offset = left.offset + row * depth.blocks + block,
                      .step = depth.blocks,
                      .b = panel,
                      .partial = partial,
                      .add = block > 0});
    }
    const std::int64_t width = static_cast<std::int64_t>(size_of(p.c.dtype));
    tiles.finish({.partial = partial,
                  .rows = rows,
                  .cols = cols,
                  .scale = p.transpose_b ? p.b.scale + col : nullptr,
                  .bias = p.bias.data != nullptr ? p.bias.row<float>(0) + col : nullptr,
                  .add = p.accumulate,
                  .c = static_cast<std::byte*>(p.c.data) + (row * p.c.stride + col) * width,
                  .is_bf16 = p.c.dtype == DType::bf16,
                  .c_stride = p.c.stride});
  });
}

void int8_matmul(KernelContext& context, const Int8MatMul& product) {
  const Int8Tiles* fast = vnni_int8_tiles();
  int8_matmul_with(fast != nullptr ? *fast : portable_int8_tiles(), context, product);
}

Int8Path int8_matmul_path() {
  if (vnni_int8_tiles() != nullptr) return {true, "8-bit dot products", "the processor has AVX512_VNNI"};
  return {false, "portable loops", "the processor has no AVX512_VNNI"};
}

}  // namespace lode
