#include "ops/dropout.h"

#include "autograd/profile.h"
#include "kernels/dropout.h"

namespace lode {

Value dropout(Context& context, const Value& x, const Batch& batch, float p, std::string_view site) {
  if (p <= 0.0f || !context.training) return x;
  if (p >= 1.0f) fail(ErrorKind::usage, "dropout: probability {} is not below 1", p);
  const PhiloxKey key = make_key(context.seed, format("dropout/{}/{}", context.step, site));
  Tensor y = context.activation(x.data.rows(), x.data.cols());
  {
    OpTimer timer(context, "dropout", 0, static_cast<double>(y.bytes()) * 2);
    dropout_apply(y.dtype(), context.kernel, {x.data.view(), y.view(), p, key, &batch.segments()});
  }
  Value out = make_value(context, std::move(y), x.wants_gradient());
  if (!out.wants_gradient()) return out;
  context.tape->record(
      context, "dropout", out.gradient,
      [id = out.gradient, x_id = x.gradient, p, key, &batch](Context& c, Tape& tape) {
        const Tensor dy = tape.take_gradient(id);
        OpTimer timer(c, "dropout", 0, static_cast<double>(dy.bytes()) * 2);
        Tensor dx = c.activation(dy.rows(), dy.cols());
        dropout_apply(dy.dtype(), c.kernel, {dy.view(), dx.view(), p, key, &batch.segments()});
        tape.add_gradient(c, x_id, std::move(dx));
      });
  return out;
}

}  // namespace lode
