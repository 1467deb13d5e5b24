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

void multiply(Context& context, const MatMul& p) {
  constexpr std::int64_t kPanel = 192;  // divides into two threads' shares of any width that matters
  const bool by_rows = p.c.rows >= p.c.cols;
  const std::int64_t length = by_rows ? p.c.rows : p.c.cols, panels = (length + kPanel - 1) / kPanel;
  const int threads = static_cast<int>(std::min<std::int64_t>(context.kernel.threads, panels));
  std::vector<Workspace> workspaces(static_cast<std::size_t>(std::max(threads, 1)),
                                    Workspace(context.memory));
  parallel_tasks(threads, panels, [&](std::int64_t panel, int thread) {
    KernelContext single{1, &workspaces[static_cast<std::size_t>(thread)]};
    const std::int64_t begin = panel * kPanel, count = std::min(kPanel, length - begin);
    MatMul part = p;
    if (by_rows) {
      part.a = p.transpose_a ? p.a.slice_cols(begin, count) : p.a.slice_rows(begin, count);
      part.c = p.c.slice_rows(begin, count);
    } else {
      part.b = p.transpose_b ? p.b.slice_rows(begin, count) : p.b.slice_cols(begin, count);
      part.c = p.c.slice_cols(begin, count);
    }
    matmul(single, part);
  });
}

}  // namespace lode
