#include "autograd/tape.h"

#include "autograd/weight.h"

#include <utility>

#include "core/fail.h"
#include "kernels/elementwise.h"

namespace lode {

GradientId Tape::new_gradient() {
  gradients_.emplace_back();
  return static_cast<GradientId>(gradients_.size() - 1);
}

void Tape::record(Context& context, const char* op, GradientId output, Backward backward) {
  nodes_.push_back({op, output, context.scope, std::move(backward), {}});
}

void Tape::uses(Context& context, std::initializer_list<Weight*> weights) {
  if (context.gradients == nullptr) return;
  for (Weight* weight : weights) {
    GradientSink* const sink = weight == nullptr ? nullptr : weight->gradient();
    if (sink == nullptr) continue;
    sink->begin_use();
    nodes_.back().sinks.push_back(sink);
  }
}

void Tape::add_gradient(Context& context, GradientId id, Tensor gradient) {
  if (id == kNoGradient) return;
  Tensor& slot = gradients_.at(static_cast<std::size_t>(id));
  if (!slot.defined()) {
    slot = std::move(gradient);
    return;
  }
  LODE_ASSERT(slot.rows() == gradient.rows() && slot.cols() == gradient.cols() &&
              slot.dtype() == gradient.dtype());
  if (slot.unique()) {
    add_inplace(slot.dtype(), context.kernel, gradient.view(), slot.view());
    return;
  }
  Tensor sum(context.memory, MemoryTag::activations, slot.dtype(), slot.rows(), slot.cols());
  add_rows(slot.dtype(), context.kernel, slot.view(), gradient.view(), sum.view());
  slot = std::move(sum);
}

const Tensor& Tape::gradient(GradientId id) const {
  return gradients_.at(static_cast<std::size_t>(id));
}

Tensor Tape::take_gradient(GradientId id) {
  Tensor gradient = std::move(gradients_.at(static_cast<std::size_t>(id)));
  gradients_[static_cast<std::size_t>(id)] = Tensor();
  return gradient;
}

void Tape::backward(Context& context) {
  run_nodes(context);
  clear();
}

void Tape::run_nodes(Context& context) {
  // Backward computes with ops' kernels directly and records nothing. Restored also when an op throws.
  struct Restore {
    Context& context;
    Tape* tape;
    std::string scope;
    ~Restore() {
      context.tape = tape;
      context.scope = std::move(scope);
    }
  } restore{context, std::exchange(context.tape, nullptr), context.scope};
  while (!nodes_.empty()) {
    Node node = std::move(nodes_.back());
    nodes_.pop_back();
    if (context.profile != nullptr) context.scope = node.scope;
    run(context, node);
    node.backward = nullptr;  // frees what it saved
    for (GradientSink* sink : node.sinks) {
      if (!sink->end_use() && context.gradients != nullptr) context.gradients->gradient_final(context, *sink);
    }
  }
}

void Tape::run(Context& context, Node& node) {
  if (node.output != kNoGradient && !gradient(node.output).defined()) return;
  if (context.search != nullptr && node.output != kNoGradient) {
    context.scope = node.scope;
    inspect(context, node.op, gradient(node.output), true);
  }
  node.backward(context, *this);
}

void Tape::clear() {
  for (const Node& node : nodes_) {
    for (GradientSink* sink : node.sinks) sink->end_use();
  }
  nodes_.clear();
  gradients_.clear();
}

Value make_value(Context& context, Tensor data, bool wants_gradient) {
  Value value{std::move(data)};
  if (wants_gradient && context.tape != nullptr) value.gradient = context.tape->new_gradient();
  return value;
}

void inspect(Context& context, const char* op, const Tensor& output, bool backward) {
  if (output.defined()) inspect(context, op, ConstView(output.view()), backward);
}

void inspect(Context& context, const char* op, ConstView output, bool backward) {
  if (context.search == nullptr || context.search->found) return;
  const auto index = find_non_finite(context.kernel, output);
  if (!index) return;
  NonFinite& result = *context.search;
  result.found = true;
  result.where = format("{}{}{}{}", context.scope, context.scope.empty() ? "" : ": ", op,
                        backward ? " (gradient of its output)" : "");
  result.row = *index / output.cols;
  result.col = *index % output.cols;
  result.per_token = true;
}

}  // namespace lode
