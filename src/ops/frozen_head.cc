#include "ops/frozen_head.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/profile.h"
#include "core/parallel.h"
#include "kernels/cross_entropy.h"

namespace lode {
namespace {

constexpr std::int64_t kTokens = 1024, kColumns = 2048;  // of a block of logits

// A chunk of tokens on its way through the vocabulary.
struct Chunk {
  Context& context;
  const FrozenHead& head;
  std::int64_t begin, count;
  View logits;  // [count, kColumns] f32
  View sums;    // U, [count, D] f32; without data: no gradient is wanted
  std::vector<SoftmaxRow> rows;
  std::vector<float> factors;
};

double flops_of(const Chunk& chunk, std::int64_t columns) {
  return 2.0 * static_cast<double>(chunk.count) * static_cast<double>(columns) *
         static_cast<double>(chunk.sums.cols);
}

// Rows of U whose maximum has risen.
void rescale(Chunk& chunk) {
  parallel_for(chunk.context.kernel.threads, chunk.count, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float factor = chunk.factors[static_cast<std::size_t>(t)];
      if (factor == 1.0f) continue;
      float* row = chunk.sums.row<float>(t);
      for (std::int64_t c = 0; c < chunk.sums.cols; ++c) row[c] *= factor;
    }
  });
}

void add_block(Chunk& chunk, std::int64_t first, std::int64_t columns) {
  Context& context = chunk.context;
  const View logits = chunk.logits.slice_cols(0, columns);
  const bool exact = context.dtype == DType::f32;
  const View exponentials{logits.data, context.dtype, chunk.count, columns,
                          exact ? logits.stride : 2 * logits.stride};
  const auto offset = static_cast<std::size_t>(chunk.begin), length = static_cast<std::size_t>(chunk.count);
  {
    OpTimer timer(context, "head", flops_of(chunk, columns));
    chunk.head.product.forward_rows(chunk.head.x.view().slice_rows(chunk.begin, chunk.count), first, columns,
                                    logits);
  }
  {
    OpTimer timer(context, "cross entropy", 0, static_cast<double>(logits.numel()) * 6);
    softmax_block(context.kernel, {.logits = logits,
                                   .first = first,
                                   .labels = chunk.head.labels.subspan(offset, length),
                                   .rows = chunk.rows,
                                   .factors = chunk.factors,
                                   .exponentials = exponentials});
    if (first > 0 && chunk.head.dx.defined()) rescale(chunk);
  }
  if (!chunk.head.dx.defined()) return;
  OpTimer timer(context, "head dX", flops_of(chunk, columns));
  chunk.head.product.backward_rows(exponentials, first, columns, first > 0, chunk.sums);
}

template <class T>
void write_gradient(const float* sums, const float* label, float share, float weight, std::int64_t cols,
                    T* out) {
  for (std::int64_t c = 0; c < cols; ++c) {
    const float value = share * sums[c] - weight * label[c];
    if constexpr (std::is_same_v<T, float>) {
      out[c] = value;
    } else {
      out[c] = to_bf16(value);
    }
  }
}

void finish_losses(Chunk& chunk) {
  const FrozenHead& head = chunk.head;
  for (std::size_t i = 0; i < chunk.rows.size(); ++i) {
    const SoftmaxRow& row = chunk.rows[i];
    const auto at = static_cast<std::size_t>(chunk.begin) + i;
    const bool target = head.labels[at] >= 0;
    head.loss[at] =
        target ? static_cast<float>(std::log(row.sum) - static_cast<double>(row.label - row.max)) : 0;
    head.correct[at] = target && row.correct ? 1 : 0;
  }
}

void finish_gradient(Chunk& chunk) {
  Context& context = chunk.context;
  const FrozenHead& head = chunk.head;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(chunk.count));
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = std::max(head.labels[static_cast<std::size_t>(chunk.begin) + i], 0);
  const std::int64_t width = chunk.sums.cols;
  Workspace::Scope scope(*context.kernel.workspace);
  // The logits have done their part.
  float* memory = width <= chunk.logits.stride ? static_cast<float*>(chunk.logits.data)
                                               : scope.take<float>(chunk.count * width);
  const View labels{memory, DType::f32, chunk.count, width, width};
  head.weight.look_up(context, ids, 1.0f, false, labels);
  parallel_for(context.kernel.threads, chunk.count, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const auto at = static_cast<std::size_t>(chunk.begin + t);
      const bool target = head.labels[at] >= 0;
      const float weight = target ? head.weights[at] : 0;
      // Without a target all sums are 0.
      const double sum = chunk.rows[static_cast<std::size_t>(t)].sum;
      const float share = target ? static_cast<float>(static_cast<double>(weight) / sum) : 0;
      const float *sums = chunk.sums.row<float>(t), *label = labels.row<float>(t);
      const View dx = head.dx.view();
      if (dx.dtype == DType::f32) {
        write_gradient(sums, label, share, weight, dx.cols, dx.row<float>(chunk.begin + t));
      } else {
        write_gradient(sums, label, share, weight, dx.cols, dx.row<bf16>(chunk.begin + t));
      }
    }
  });
}

}  // namespace

void run_frozen_head(Context& context, const FrozenHead& head) {
  const std::int64_t tokens = head.x.rows(), vocabulary = head.weight.rows(), width = head.weight.cols();
  const std::int64_t most = std::min(tokens, kTokens), columns = std::min(vocabulary, kColumns);
  const std::int64_t stride = (columns + 31) / 32 * 32;
  Workspace::Scope scope(*context.kernel.workspace);
  float* logits = scope.take<float>(most * stride);
  float* sums = head.dx.defined() ? scope.take<float>(most * width) : nullptr;
  for (std::int64_t begin = 0; begin < tokens; begin += most) {
    const std::int64_t count = std::min(most, tokens - begin);
    Chunk chunk{.context = context,
                .head = head,
                .begin = begin,
                .count = count,
                .logits = {logits, DType::f32, count, columns, stride},
                .sums = {sums, DType::f32, count, width, width},
                .rows = std::vector<SoftmaxRow>(static_cast<std::size_t>(count)),
                .factors = std::vector<float>(static_cast<std::size_t>(count), 1.0f)};
    for (std::int64_t first = 0; first < vocabulary; first += columns)
      add_block(chunk, first, std::min(columns, vocabulary - first));
    finish_losses(chunk);
    if (head.dx.defined()) finish_gradient(chunk);
  }
}

}  // namespace lode
