#include "ops/linear_cross_entropy.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "autograd/profile.h"
#include "core/parallel.h"
#include "kernels/cross_entropy.h"
#include "kernels/matmul.h"
#include "ops/frozen_head.h"
#include "ops/weight_product.h"

namespace lode {
namespace {

// Logits of a chunk take at most this much: large enough for efficient products, small beside a model. The
// gradient of a large head is summed over the tokens of a chunk and wants more of them.
constexpr std::int64_t kChunkBytes = 60'000'000;
constexpr std::int64_t kLeastForGradient = 128;

// Columns of logits in memory: rows that begin at a cache line make all products with them faster.
std::int64_t padded(std::int64_t vocabulary) {
  constexpr std::int64_t kMultiple = 32;
  return (vocabulary + kMultiple - 1) / kMultiple * kMultiple;
}

// What the chunks read and write, row by row. A row is a token, or one of those with a target.
struct Head {
  Context& context;
  Tensor x, z;  // z: of the adapter
  Weight& weight;
  Weight* adapter;
  const WeightProduct& product;
  ConstView b;  // of the adapter, in use during the op
  std::vector<std::int32_t> labels;
  std::vector<float> weights;  // scaled
  Tensor dx, dz;               // undefined: not wanted
  bool wants_dw, wants_db;
  std::vector<float> loss;
  std::vector<std::uint8_t> correct;
};

// Scratch products have few different heights.
constexpr std::int64_t kRowMultiple = 32;

// The tokens with a target, when leaving out the others saves products; else nothing: all are rows.
std::vector<std::int64_t> chosen_tokens(const Batch& batch) {
  std::vector<std::int64_t> chosen;
  for (std::size_t t = 0; t < batch.labels().size(); ++t)
    if (batch.labels()[t] != kIgnoreLabel) chosen.push_back(static_cast<std::int64_t>(t));
  const auto count = static_cast<std::int64_t>(chosen.size());
  if (count == 0 || count + kRowMultiple > batch.num_tokens()) return {};
  return chosen;
}

std::byte* row_bytes(const Tensor& matrix, std::int64_t row) {
  const View view = matrix.view();
  return static_cast<std::byte*>(view.data) +
         static_cast<std::size_t>(row * view.stride) * size_of(view.dtype);
}

std::size_t row_size(const Tensor& matrix) {
  return static_cast<std::size_t>(matrix.cols()) * size_of(matrix.dtype());
}

// The chosen rows, then zeros up to a multiple. In place where nobody else needs the others: then a batch of
// few targets never takes more memory than one in which each token has one.
Tensor gather(Context& context, Tensor all, const std::vector<std::int64_t>& chosen) {
  if (chosen.empty() || !all.defined()) return all;
  const auto count = static_cast<std::int64_t>(chosen.size());
  const std::int64_t rows = (count + kRowMultiple - 1) / kRowMultiple * kRowMultiple;
  const bool in_place = all.unique();
  Tensor out = in_place ? all.slice_rows(0, rows) : context.activation(rows, all.cols());
  // In place a row is read before another one is written there: rows only move to the front, one after the
  // other.
  parallel_for(in_place ? 1 : context.kernel.threads, rows, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (i < count) {
        std::memmove(row_bytes(out, i), row_bytes(all, chosen[static_cast<std::size_t>(i)]), row_size(all));
      } else {
        std::memset(row_bytes(out, i), 0, row_size(all));
      }
    }
  });
  return out;
}

// The chosen rows back at their tokens, zeros elsewhere.
Tensor scatter(Context& context, const Tensor& rows, const std::vector<std::int64_t>& chosen,
               std::int64_t tokens) {
  if (chosen.empty()) return rows;
  Tensor out = context.activation(tokens, rows.cols());
  parallel_for(context.kernel.threads, tokens, 64, [&](std::int64_t begin, std::int64_t end) {
    auto next = std::ranges::lower_bound(chosen, begin);
    for (std::int64_t t = begin; t < end; ++t) {
      if (next != chosen.end() && *next == t) {
        std::memcpy(row_bytes(out, t), row_bytes(rows, next++ - chosen.begin()), row_size(rows));
      } else {
        std::memset(row_bytes(out, t), 0, row_size(rows));
      }
    }
  });
  return out;
}

double flops_of(const Head& head, std::int64_t tokens) {
  return 2.0 * static_cast<double>(tokens) * static_cast<double>(head.weight.rows()) *
         static_cast<double>(head.weight.cols());
}

void add_weight_gradient(Context& context, ConstView dlogits, ConstView x, Weight& weight) {
  const auto target = weight.gradient()->target(context);
  matmul(context.kernel,
         {.a = dlogits, .b = x, .transpose_a = true, .accumulate = target.accumulate, .c = target.view});
}

// One chunk: logits in f32, their gradient in the activations' dtype over the same memory.
void run_chunk(Head& head, std::int64_t begin, std::int64_t count, float* logits_memory) {
  Context& context = head.context;
  const std::int64_t vocabulary = head.weight.rows();
  const std::int64_t stride = padded(vocabulary);
  const View logits{logits_memory, DType::f32, count, vocabulary, stride};
  const View dlogits{logits_memory, context.dtype, count, vocabulary,
                     context.dtype == DType::f32 ? stride : 2 * stride};
  const ConstView x = head.x.view().slice_rows(begin, count);
  const bool adapted = head.adapter != nullptr;
  const ConstView z = adapted ? ConstView(head.z.view().slice_rows(begin, count)) : ConstView{};
  {
    OpTimer timer(context, "head", flops_of(head, count));
    head.product.forward(x, {}, logits);
    if (adapted) {
      matmul(context.kernel, {.a = z, .b = head.b, .transpose_b = true, .accumulate = true, .c = logits});
    }
  }
  const bool wants_gradient = head.dx.defined() || head.dz.defined() || head.wants_dw || head.wants_db;
  const auto offset = static_cast<std::size_t>(begin), length = static_cast<std::size_t>(count);
  {
    OpTimer timer(context, "cross entropy", 0,
                  static_cast<double>(logits.numel()) * (wants_gradient ? 6 : 4));
    CrossEntropyRows rows{.logits = logits,
                          .labels = std::span(head.labels).subspan(offset, length),
                          .weight = std::span(head.weights).subspan(offset, length),
                          .loss = std::span(head.loss).subspan(offset, length),
                          .correct = std::span(head.correct).subspan(offset, length)};
    if (wants_gradient) rows.dlogits = dlogits;
    cross_entropy_rows(DType::f32, context.kernel, rows);
  }
  if (head.dx.defined()) {
    OpTimer timer(context, "head dX", flops_of(head, count));
    head.product.backward(dlogits, false, head.dx.view().slice_rows(begin, count));
  }
  if (head.wants_dw) {
    OpTimer timer(context, "head dW", flops_of(head, count));
    add_weight_gradient(context, dlogits, x, head.weight);
  }
  if (head.dz.defined()) {
    matmul(context.kernel, {.a = dlogits, .b = head.b, .c = head.dz.view().slice_rows(begin, count)});
  }
  if (head.wants_db) add_weight_gradient(context, dlogits, z, *head.adapter);
}

std::int64_t fitting_tokens(const Head& head) {
  const std::int64_t fitting = kChunkBytes / (padded(head.weight.rows()) * 4) / kRowMultiple * kRowMultiple;
  return std::max(fitting, head.wants_dw ? kLeastForGradient : kRowMultiple);
}

void run_chunks(Head& head, std::int64_t chunk_tokens) {
  const std::int64_t rows = head.x.rows();
  const std::int64_t chunk = std::min(rows, chunk_tokens > 0 ? chunk_tokens : fitting_tokens(head));
  Workspace::Scope scope(*head.context.kernel.workspace);
  float* logits = scope.take<float>(chunk * padded(head.weight.rows()));
  for (std::int64_t begin = 0; begin < rows; begin += chunk)
    run_chunk(head, begin, std::min(chunk, rows - begin), logits);
}

void fill_targets(Head& head, const Batch& batch, const std::vector<std::int64_t>& chosen, float loss_scale) {
  const auto rows = static_cast<std::size_t>(head.x.rows());
  head.labels.assign(rows, kIgnoreLabel);
  head.weights.assign(rows, 0.0f);
  head.loss.assign(rows, 0.0f);
  head.correct.assign(rows, 0);
  const std::size_t used = chosen.empty() ? rows : chosen.size();
  for (std::size_t i = 0; i < used; ++i) {
    const std::size_t token = chosen.empty() ? i : static_cast<std::size_t>(chosen[i]);
    head.labels[i] = batch.labels()[token];
    head.weights[i] = batch.loss_weight()[token] * loss_scale;
  }
}

TokenLosses losses_of(const Head& head, const Batch& batch, const std::vector<std::int64_t>& chosen) {
  TokenLosses out;
  if (chosen.empty()) {
    out.loss = head.loss;
    out.correct = head.correct;
  } else {
    const auto tokens = static_cast<std::size_t>(batch.num_tokens());
    out.loss.assign(tokens, 0.0f);
    out.correct.assign(tokens, 0);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      out.loss[static_cast<std::size_t>(chosen[i])] = head.loss[i];
      out.correct[static_cast<std::size_t>(chosen[i])] = head.correct[i];
    }
  }
  for (std::size_t t = 0; t < out.loss.size(); ++t) {
    if (batch.labels()[t] == kIgnoreLabel) continue;
    out.sum += static_cast<double>(out.loss[t]);
    out.num_correct += out.correct[t];
    ++out.num_targets;
  }
  return out;
}

}  // namespace

TokenLosses linear_cross_entropy(Context& context, Value x, Weight& weight, const Batch& batch,
                                 float loss_scale, std::int64_t chunk_tokens, const LowRankHead& adapter) {
  const std::int64_t tokens = x.data.rows();
  if (tokens != batch.num_tokens() || x.data.cols() != weight.cols()) {
    fail(ErrorKind::internal,
         "linear_cross_entropy: x is [{}, {}], the weight [{}, {}], the batch has {} tokens", tokens,
         x.data.cols(), weight.rows(), weight.cols(), batch.num_tokens());
  }
  for (const std::int32_t label : batch.labels()) {
    if (label != kIgnoreLabel && (label < 0 || label >= weight.rows())) {
      fail(ErrorKind::data, "label {} is outside the model's vocabulary of {}", label, weight.rows());
    }
  }
  // Acquired once for all chunks: a quantised head is made floats once.
  const WeightProduct product(context, weight);
  std::optional<WeightUse> b;
  if (adapter.b != nullptr) b.emplace(context, *adapter.b, context.dtype);
  const Value& z = adapter.z;
  const bool records = context.tape != nullptr;
  const std::vector<std::int64_t> chosen = chosen_tokens(batch);
  Head head{.context = context,
            .x = gather(context, std::move(x.data), chosen),
            .z = gather(context, z.data, chosen),
            .weight = weight,
            .adapter = adapter.b,
            .product = product,
            .b = b ? b->view() : ConstView{},
            .wants_dw = records && weight.gradient() != nullptr,
            .wants_db = records && b && adapter.b->gradient() != nullptr};
  if (x.wants_gradient()) head.dx = context.activation(head.x.rows(), head.x.cols());
  if (z.wants_gradient()) head.dz = context.activation(head.z.rows(), head.z.cols());
  fill_targets(head, batch, chosen, loss_scale);
  const bool frozen = !head.wants_dw && adapter.b == nullptr;
  if (frozen && chunk_tokens == 0) {
    run_frozen_head(context,
                    {product, weight, head.x, head.dx, head.labels, head.weights, head.loss, head.correct});
  } else {
    run_chunks(head, chunk_tokens);
  }
  TokenLosses out = losses_of(head, batch, chosen);
  inspect(context, "cross entropy", ConstView{out.loss.data(), DType::f32, tokens, 1, 1});
  for (const auto& [id, gradient] : {std::pair(x.gradient, head.dx), std::pair(z.gradient, head.dz)}) {
    if (!gradient.defined()) continue;
    context.tape->record(context, "head", kNoGradient,
                         [id = id, saved = Saved(gradient), chosen, tokens](Context& c, Tape& tape) {
                           tape.add_gradient(c, id, scatter(c, saved.get(c), chosen, tokens));
                         });
    context.tape->uses(context, {&weight, adapter.b});
  }
  return out;
}

}  // namespace lode
