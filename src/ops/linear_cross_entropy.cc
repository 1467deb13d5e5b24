#include "ops/linear_cross_entropy.h"

#include <algorithm>
#include <optional>

#include "autograd/profile.h"
#include "kernels/cross_entropy.h"
#include "kernels/matmul.h"
#include "ops/weight_product.h"

namespace lode {
namespace {

// Logits of a chunk take at most this much: large enough for efficient products, small beside a model.
constexpr std::int64_t kChunkBytes = std::int64_t{64} << 20;

std::int64_t fitting_tokens(std::int64_t vocabulary) {
  const std::int64_t fitting = kChunkBytes / (vocabulary * 4) / 128 * 128;
  return std::max<std::int64_t>(fitting, 128);
}

struct Head {
  Context& context;
  const Tensor& x;
  Weight& weight;
  const Batch& batch;
  const LowRankHead& adapter;
  const WeightProduct& product;
  ConstView b;    // of the adapter, in use during the op
  Tensor dx, dz;  // undefined: not wanted
  bool wants_dw, wants_db;
};

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
void run_chunk(Head& head, std::int64_t begin, std::int64_t count, float* logits_memory, float loss_scale,
               std::span<float> weights, TokenLosses& out) {
  Context& context = head.context;
  const std::int64_t vocabulary = head.weight.rows();
  const View logits{logits_memory, DType::f32, count, vocabulary, vocabulary};
  const View dlogits{logits_memory, context.dtype, count, vocabulary,
                     context.dtype == DType::f32 ? vocabulary : 2 * vocabulary};
  const ConstView x = head.x.view().slice_rows(begin, count);
  const bool adapted = head.adapter.b != nullptr;
  const ConstView z = adapted ? ConstView(head.adapter.z.data.view().slice_rows(begin, count)) : ConstView{};
  {
    OpTimer timer(context, "head", flops_of(head, count));
    head.product.forward(x, {}, logits);
    if (adapted) {
      matmul(context.kernel, {.a = z, .b = head.b, .transpose_b = true, .accumulate = true, .c = logits});
    }
  }
  const bool wants_gradient = head.dx.defined() || head.dz.defined() || head.wants_dw || head.wants_db;
  const auto offset = static_cast<std::size_t>(begin), length = static_cast<std::size_t>(count);
  for (std::size_t i = 0; i < length; ++i) weights[i] = head.batch.loss_weight()[offset + i] * loss_scale;
  {
    OpTimer timer(context, "cross entropy", 0,
                  static_cast<double>(logits.numel()) * (wants_gradient ? 6 : 4));
    CrossEntropyRows rows{.logits = logits,
                          .labels = std::span(head.batch.labels()).subspan(offset, length),
                          .weight = weights.first(length),
                          .loss = std::span(out.loss).subspan(offset, length),
                          .correct = std::span(out.correct).subspan(offset, length)};
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
  if (head.wants_db) add_weight_gradient(context, dlogits, z, *head.adapter.b);
}

}  // namespace

TokenLosses linear_cross_entropy(Context& context, const Value& x, Weight& weight, const Batch& batch,
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
  TokenLosses out;
  out.loss.assign(static_cast<std::size_t>(tokens), 0.0f);
  out.correct.assign(static_cast<std::size_t>(tokens), 0);
  // Acquired once for all chunks: a quantised head is made floats once.
  const WeightProduct product(context, weight);
  std::optional<WeightUse> b;
  if (adapter.b != nullptr) b.emplace(context, *adapter.b, context.dtype);
  const Value& z = adapter.z;
  const bool records = context.tape != nullptr;
  Head head{.context = context,
            .x = x.data,
            .weight = weight,
            .batch = batch,
            .adapter = adapter,
            .product = product,
            .b = b ? b->view() : ConstView{},
            .dx = x.wants_gradient() ? context.activation(tokens, x.data.cols()) : Tensor(),
            .dz = z.wants_gradient() ? context.activation(tokens, z.data.cols()) : Tensor(),
            .wants_dw = records && weight.gradient() != nullptr,
            .wants_db = records && b && adapter.b->gradient() != nullptr};
  {
    const std::int64_t chunk =
        std::min(tokens, chunk_tokens > 0 ? chunk_tokens : fitting_tokens(weight.rows()));
    Workspace::Scope scope(*context.kernel.workspace);
    float* logits = scope.take<float>(chunk * weight.rows());
    std::vector<float> weights(static_cast<std::size_t>(chunk));
    for (std::int64_t begin = 0; begin < tokens; begin += chunk) {
      run_chunk(head, begin, std::min(chunk, tokens - begin), logits, loss_scale, weights, out);
    }
  }
  inspect(context, "cross entropy", ConstView{out.loss.data(), DType::f32, tokens, 1, 1});
  for (std::size_t t = 0; t < out.loss.size(); ++t) {
    if (batch.labels()[t] == kIgnoreLabel) continue;
    out.sum += static_cast<double>(out.loss[t]);
    out.num_correct += out.correct[t];
    ++out.num_targets;
  }
  for (const auto& [id, gradient] : {std::pair(x.gradient, head.dx), std::pair(z.gradient, head.dz)}) {
    if (!gradient.defined()) continue;
    context.tape->record(context, "head", kNoGradient,
                         [id = id, saved = Saved(gradient)](Context& c, Tape& tape) {
                           tape.add_gradient(c, id, saved.get(c));
                         });
    context.tape->uses(context, {&weight, adapter.b});
  }
  return out;
}

}  // namespace lode
