#include "ops/activation.h"

#include "autograd/profile.h"

namespace lode {
namespace {

Tensor gated_values(Context& context, const Tensor& gate_up, GateKind kind) {
  Tensor y = context.activation(gate_up.rows(), gate_up.cols() / 2);
  OpTimer timer(context, "gated", 0, static_cast<double>(y.bytes()) * 3);
  gated_forward(y.dtype(), context.kernel, kind, gate_up.view(), y.view());
  return y;
}

Tensor gelu_values(Context& context, const Tensor& x, GeluKind kind) {
  Tensor y = context.activation(x.rows(), x.cols());
  OpTimer timer(context, "gelu", 0, static_cast<double>(y.bytes()) * 2);
  gelu_forward(y.dtype(), context.kernel, kind, x.view(), y.view());
  return y;
}

// For a result of the same shape and type: over what nobody else needs any more.
Tensor in_place_of(Context& context, const Tensor& last_used) {
  if (last_used.unique() && last_used.dtype() == context.dtype) return last_used;
  return context.activation(last_used.rows(), last_used.cols());
}

}  // namespace

Value gated(Context& context, const Value& gate_up, GateKind kind, SavePolicy policy) {
  LODE_ASSERT(gate_up.data.cols() % 2 == 0);
  Tensor y = gated_values(context, gate_up.data, kind);
  inspect(context, "gated", y);
  Value out = make_value(context, std::move(y), gate_up.wants_gradient());
  if (!out.wants_gradient()) return out;
  if (policy == SavePolicy::recompute) {
    out.later = std::make_shared<RecomputedTensor>(
        [saved = gate_up.saved(context), kind](Context& c) { return gated_values(c, saved.get(c), kind); });
  }
  context.tape->record(context, "gated", out.gradient,
                       [id = out.gradient, x_id = gate_up.gradient, kind, saved = gate_up.saved(context)](
                           Context& c, Tape& tape) mutable {
                         const Tensor dy = tape.take_gradient(id);
                         const Tensor x = saved.take(c);
                         OpTimer timer(c, "gated backward", 0, static_cast<double>(dy.bytes()) * 5);
                         Tensor dx = in_place_of(c, x);
                         gated_backward(dy.dtype(), c.kernel, kind, dy.view(), x.view(), dx.view());
                         tape.add_gradient(c, x_id, std::move(dx));
                       });
  return out;
}

Value gelu(Context& context, const Value& x, GeluKind kind, SavePolicy policy) {
  Tensor y = gelu_values(context, x.data, kind);
  inspect(context, "gelu", y);
  Value out = make_value(context, std::move(y), x.wants_gradient());
  if (!out.wants_gradient()) return out;
  if (policy == SavePolicy::recompute) {
    out.later = std::make_shared<RecomputedTensor>(
        [saved = x.saved(context), kind](Context& c) { return gelu_values(c, saved.get(c), kind); });
  }
  context.tape->record(
      context, "gelu", out.gradient,
      [id = out.gradient, x_id = x.gradient, kind, saved = x.saved(context)](Context& c, Tape& tape) {
        const Tensor dy = tape.take_gradient(id);
        OpTimer timer(c, "gelu backward", 0, static_cast<double>(dy.bytes()) * 3);
        Tensor dx = in_place_of(c, dy);
        gelu_backward(dy.dtype(), c.kernel, kind, dy.view(), saved.get(c).view(), dx.view());
        tape.add_gradient(c, x_id, std::move(dx));
      });
  return out;
}

}  // namespace lode
