#include "optim/state.h"

#include <algorithm>

#include "core/parallel.h"
#include "kernels/elementwise.h"

namespace lode {

std::vector<Tensor> zeros(Context& context,
                          std::initializer_list<std::pair<std::int64_t, std::int64_t>> shapes) {
  std::vector<Tensor> state;
  for (const auto& [rows, cols] : shapes) {
    state.emplace_back(context.memory, MemoryTag::optimizer, DType::f32, rows, cols);
    // Fresh memory is touched by the first update, not before the first step.
    if (!state.back().was_zero()) fill(context.kernel, state.back().view(), 0.0f);
  }
  return state;
}

Tensor scratch(Context& context, std::int64_t rows, std::int64_t cols, DType dtype) {
  return Tensor(context.memory, MemoryTag::workspace, dtype, rows, cols);
}

bool is_target(const Parameter& parameter, const std::vector<std::string>& targets) {
  if (parameter.vector || parameter.kind != ModuleKind::linear) return false;
  return std::ranges::any_of(targets, [&](const std::string& target) {
    return target == "all" || names_module(target, parameter.module());
  });
}

namespace {

// Operands are packed once a panel: long ones where all is computed, short ones where a half is left out.
constexpr std::int64_t kPanel = 384, kSymmetricPanel = 192;

// body(begin, count, context of one thread) for panels of about equal length, the last ones first: they are
// the longer ones of a symmetric product.
template <class Body>
void for_panels(Context& context, std::int64_t length, std::int64_t longest, Body body) {
  std::int64_t panels = (length + longest - 1) / longest;
  if (panels == 1 && length > longest / 2) panels = 2;  // for two threads
  constexpr std::int64_t kRound = 32;
  const std::int64_t size = (length + panels * kRound - 1) / (panels * kRound) * kRound;
  panels = (length + size - 1) / size;
  const int threads = static_cast<int>(std::min<std::int64_t>(context.kernel.threads, panels));
  std::vector<Workspace> workspaces(static_cast<std::size_t>(std::max(threads, 1)),
                                    Workspace(context.memory));
  parallel_tasks(threads, panels, [&](std::int64_t task, int thread) {
    KernelContext single{1, &workspaces[static_cast<std::size_t>(thread)]};
    const std::int64_t begin = (panels - 1 - task) * size;
    body(begin, std::min(size, length - begin), single);
  });
}

MatMul rows_of(MatMul p, std::int64_t begin, std::int64_t count) {
  p.a = p.transpose_a ? p.a.slice_cols(begin, count) : p.a.slice_rows(begin, count);
  p.c = p.c.slice_rows(begin, count);
  return p;
}

MatMul cols_of(MatMul p, std::int64_t begin, std::int64_t count) {
  p.b = p.transpose_b ? p.b.slice_rows(begin, count) : p.b.slice_cols(begin, count);
  p.c = p.c.slice_cols(begin, count);
  return p;
}

// Rows [begin, begin + count) right of `first` from the columns below, in tiles that stay in the cache.
template <class T>
void mirror(View c, std::int64_t begin, std::int64_t count, std::int64_t first) {
  constexpr std::int64_t kTile = 16;
  for (std::int64_t from = first; from < c.cols; from += kTile) {
    const std::int64_t to = std::min(c.cols, from + kTile);
    for (std::int64_t r = begin; r < begin + count; ++r) {
      T* out = c.row<T>(r);
      for (std::int64_t i = from; i < to; ++i) out[i] = c.row<T>(i)[r];
    }
  }
}

}  // namespace

void multiply(Context& context, const MatMul& p) {
  const bool by_rows = p.c.rows >= p.c.cols;
  for_panels(context, by_rows ? p.c.rows : p.c.cols, kPanel,
             [&](std::int64_t begin, std::int64_t count, KernelContext& single) {
               matmul(single, by_rows ? rows_of(p, begin, count) : cols_of(p, begin, count));
             });
}

void multiply_in_run_precision(Context& context, const MatMul& p) {
  if (context.dtype == DType::f32 || !bf16_matmul_path().native_bf16) return multiply(context, p);
  const bool by_rows = p.c.rows >= p.c.cols;
  // The operand that all panels share is rounded once, the other one panel by panel, where it is in the
  // cache.
  const ConstView shared = by_rows ? p.b : p.a;
  const Tensor rounded = scratch(context, shared.rows, shared.cols, DType::bf16);
  convert(context.kernel, shared, rounded.view());
  MatMul product = p;
  (by_rows ? product.b : product.a) = rounded.view();
  for_panels(context, by_rows ? p.c.rows : p.c.cols, kPanel,
             [&](std::int64_t begin, std::int64_t count, KernelContext& single) {
               MatMul part = by_rows ? rows_of(product, begin, count) : cols_of(product, begin, count);
               ConstView& operand = by_rows ? part.a : part.b;
               Workspace::Scope scope(*single.workspace);
               const View narrow{scope.take<bf16>(operand.numel()), DType::bf16, operand.rows, operand.cols,
                                 operand.cols};
               convert(single, operand, narrow);
               operand = narrow;
               matmul(single, part);
             });
}

void multiply_symmetric(Context& context, const MatMul& p) {
  LODE_ASSERT(p.c.rows == p.c.cols && !p.accumulate && p.bias.data == nullptr);
  const std::int64_t panel = kSymmetricPanel;
  for_panels(context, p.c.rows, panel, [&](std::int64_t begin, std::int64_t count, KernelContext& single) {
    matmul(single, cols_of(rows_of(p, begin, count), 0, begin + count));
  });
  for_panels(context, p.c.rows, panel, [&](std::int64_t begin, std::int64_t count, KernelContext&) {
    p.c.dtype == DType::bf16 ? mirror<bf16>(p.c, begin, count, begin + count)
                             : mirror<float>(p.c, begin, count, begin + count);
  });
}

}  // namespace lode
