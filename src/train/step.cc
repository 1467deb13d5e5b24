#include "train/step.h"

#include <algorithm>
#include <cmath>

#include "autograd/capture.h"
#include "kernels/elementwise.h"

namespace lode {
namespace {

TokenLosses run_micro_batch(Context& context, Decoder& decoder, const Batch& batch, float loss_scale,
                            BackwardUpdate* update = nullptr) {
  GraphCapture::MicroStep micro_step(context.search == nullptr ? context.capture : nullptr, context.memory,
                                     batch.num_tokens());
  Tape tape;
  context.tape = &tape;
  TokenLosses losses;
  try {
    context.gradients = update;
    losses = decoder.loss(context, batch, loss_scale);
    if (update != nullptr && !std::isfinite(losses.sum)) update->stop();
    tape.backward(context);
  } catch (...) {
    context.tape = nullptr;
    context.gradients = nullptr;
    context.scope.clear();
    throw;
  }
  context.tape = nullptr;
  context.gradients = nullptr;
  micro_step.done();
  return losses;
}

float loss_scale_of(const Step& step) {
  return step.num_targets == 0 ? 0.0f : static_cast<float>(1.0 / static_cast<double>(step.num_targets));
}

bool beyond_f16(Context& context, const ParameterList& parameters) {
  return std::ranges::any_of(parameters.all(), [&](const Parameter& parameter) {
    return parameter.trainable() && parameter.storage->gradient() != nullptr &&
           range_for_f16(context.kernel, parameter.gradient()).overflows > 0;
  });
}

// Every op's output is searched while this lives.
class Searching {
 public:
  Searching(Context& context, NonFinite& result) : context_(context) { context.search = &result; }
  ~Searching() { context_.search = nullptr; }
  Searching(const Searching&) = delete;
  Searching& operator=(const Searching&) = delete;

 private:
  Context& context_;
};

std::string describe(const NonFinite& bad, const Batch& batch) {
  if (!bad.per_token || bad.row >= batch.num_tokens()) return bad.where;
  const Segments& segments = batch.segments();
  const auto row = static_cast<std::size_t>(bad.row);
  const Segment& segment = segments.list()[static_cast<std::size_t>(segments.segment_of()[row])];
  if (segment.padding) return bad.where;
  return format("{}, sample {}, position {}, channel {}", bad.where, segment.sample,
                segments.positions()[row], bad.col);
}

}  // namespace

StepResult compute_gradients(Context& context, Decoder& decoder, const Step& step, BackwardUpdate* update,
                             std::optional<double> gradient_scale) {
  LODE_ASSERT(update == nullptr || step.micro_batches.size() == 1);
  if (update != nullptr && step.num_targets == 0) update->stop();
  decoder.parameters().reset_gradients();
  StepResult result;
  result.num_targets = step.num_targets;
  const float scale = loss_scale_of(step) * static_cast<float>(gradient_scale.value_or(1));
  const double recomputed_before = decoder.recomputed_flops();
  const std::int64_t rebuilt_before = decoder.segments_rebuilt();
  for (const Batch& batch : step.micro_batches) {
    result.loss_sum += run_micro_batch(context, decoder, batch, scale, update).sum;
    for (const Segment& segment : batch.segments().list()) {
      result.num_tokens += segment.padding ? 0 : segment.length;
    }
    result.flops += decoder.training_flops(batch.segments(), batch.num_targets());
    ++result.segments_built;
    result.segments_used += batch.segment_uses();
  }
  result.segments_built += decoder.segments_rebuilt() - rebuilt_before;
  result.recomputed_flops = decoder.recomputed_flops() - recomputed_before;
  if (update != nullptr) {
    const BackwardUpdate::Result done = update->finish(context);
    result.grad_norm = done.norm;
    result.updated = done.updated;
    result.finite = std::isfinite(result.loss_sum) && std::isfinite(result.grad_norm);
    return result;
  }
  for (const auto& storage : decoder.parameters().storages()) {
    // A parameter that nothing reached has no gradient, not the last step's.
    if (storage->gradient() != nullptr && storage->gradient()->stale()) storage->gradient()->adding(context);
  }
  result.grad_norm = gradient_norm(context, decoder.parameters()) / gradient_scale.value_or(1);
  if (gradient_scale) result.overflow = beyond_f16(context, decoder.parameters());
  result.finite = std::isfinite(result.loss_sum) && std::isfinite(result.grad_norm);
  return result;
}

std::string find_bad_tensor(Context& context, Decoder& decoder, const Step& step) {
  for (const Parameter& parameter : decoder.parameters().all()) {
    if (!parameter.quantized() && find_non_finite(context.kernel, parameter.values()))
      return format("the weights of {}", parameter.name);
  }
  decoder.parameters().reset_gradients();
  struct Freed {
    ParameterList& parameters;
    ~Freed() { parameters.free_gradients(); }
  } const freed{decoder.parameters()};
  for (const Batch& batch : step.micro_batches) {
    NonFinite bad;
    {
      const Searching searching(context, bad);
      run_micro_batch(context, decoder, batch, loss_scale_of(step));
    }
    if (bad.found) return describe(bad, batch);
  }
  for (const Parameter& parameter : decoder.parameters().all()) {
    const GradientSink* sink = parameter.trainable() ? parameter.storage->gradient() : nullptr;
    if (sink == nullptr || sink->stale()) continue;
    if (find_non_finite(context.kernel, parameter.gradient())) {
      return format("the gradient of {}", parameter.name);
    }
  }
  return "the sum over the gradients of all parameters";
}

}  // namespace lode
