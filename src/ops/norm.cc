#include "ops/norm.h"

#include "autograd/profile.h"

namespace lode {
namespace {

double matrix_bytes(const Tensor& x, int passes) {
  return static_cast<double>(x.bytes()) * passes;
}

struct NormSaved {
  Saved h, rstd, mean;
};

void norm_gradient(Context& context, Tape& tape, const NormParameters& p, const NormSaved& saved,
                   GradientId y_id, GradientId h_id, GradientId x_id, GradientId delta_id) {
  Tensor dy = tape.take_gradient(y_id);
  Tensor dh = h_id == kNoGradient ? Tensor() : tape.take_gradient(h_id);
  const Tensor& h = saved.h.get();
  OpTimer timer(context, "norm backward", 0, matrix_bytes(h, dh.defined() ? 4 : 3));
  // dy is ours alone in practice: its memory becomes dx.
  Tensor dx = dy.unique() ? dy : context.activation(h.rows(), h.cols());
  const WeightUse weight(context, *p.weight, DType::f32);
  NormBackward args{.kind = p.kind,
                    .dy = dy.view(),
                    .h = h.view(),
                    .weight = weight.view(),
                    .rstd = saved.rstd.get().view()};
  if (p.kind == NormKind::layer) args.mean = saved.mean.get().view();
  if (dh.defined()) args.dh = dh.view();
  args.dx = dx.view();
  if (p.weight->gradient() != nullptr) args.dweight = p.weight->gradient()->adding(context);
  if (p.bias != nullptr && p.bias->gradient() != nullptr) args.dbias = p.bias->gradient()->adding(context);
  norm_backward(h.dtype(), context.kernel, args);
  if (delta_id != kNoGradient) tape.add_gradient(context, delta_id, dx);
  tape.add_gradient(context, x_id, std::move(dx));
}

}  // namespace

AddNorm add_norm(Context& context, const Value& x, const Value* delta, const NormParameters& p) {
  const std::int64_t rows = x.data.rows(), cols = x.data.cols();
  if (p.weight->cols() != cols ||
      (delta != nullptr && (delta->data.rows() != rows || delta->data.cols() != cols))) {
    fail(ErrorKind::internal, "norm: x is [{}, {}], the weight has {} channels", rows, cols,
         p.weight->cols());
  }
  Tensor h = delta == nullptr ? x.data : context.activation(rows, cols);
  Tensor y = context.activation(rows, cols);
  NormSaved saved{Saved(h), Saved(context.statistic(rows)),
                  Saved(p.kind == NormKind::layer ? context.statistic(rows) : Tensor())};
  {
    OpTimer timer(context, "norm", 0, matrix_bytes(h, delta == nullptr ? 2 : 4));
    const WeightUse weight(context, *p.weight, DType::f32);
    NormForward args{.kind = p.kind,
                     .eps = p.eps,
                     .x = x.data.view(),
                     .weight = weight.view(),
                     .h = h.view(),
                     .y = y.view(),
                     .rstd = saved.rstd.get().view()};
    if (delta != nullptr) args.delta = delta->data.view();
    if (p.kind == NormKind::layer) args.mean = saved.mean.get().view();
    if (p.bias == nullptr) {
      norm_forward(h.dtype(), context.kernel, args);
    } else {
      const WeightUse bias(context, *p.bias, DType::f32);
      args.bias = bias.view();
      norm_forward(h.dtype(), context.kernel, args);
    }
  }
  inspect(context, "norm", y);

  const bool wants =
      x.wants_gradient() || (delta != nullptr && delta->wants_gradient()) || p.weight->gradient() != nullptr;
  AddNorm out;
  // Without delta h is x.
  out.h = delta == nullptr ? x : make_value(context, h, wants);
  out.y = make_value(context, std::move(y), wants);
  if (!out.y.wants_gradient()) return out;
  const GradientId h_id = out.h.gradient;
  const GradientId delta_id = delta == nullptr ? kNoGradient : delta->gradient;
  if (delta != nullptr) {
    // Runs after the norm's node, which takes h's gradient along: does something only when nobody has used y.
    context.tape->record(context, "add", h_id, [h_id, x_id = x.gradient, delta_id](Context& c, Tape& tape) {
      Tensor dh = tape.take_gradient(h_id);
      tape.add_gradient(c, delta_id, dh);
      tape.add_gradient(c, x_id, std::move(dh));
    });
  }
  // Whatever has reached h when this node runs is all that will: its other users come later on the tape.
  context.tape->record(
      context, "norm", out.y.gradient,
      [p, saved = std::move(saved), y_id = out.y.gradient, h_id, x_id = x.gradient, delta_id](
          Context& c, Tape& tape) { norm_gradient(c, tape, p, saved, y_id, h_id, x_id, delta_id); });
  return out;
}

}  // namespace lode
