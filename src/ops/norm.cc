#include "ops/norm.h"

#include "autograd/profile.h"
#include "kernels/elementwise.h"

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
  args.offset = p.offset;
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
                     .rstd = saved.rstd.get().view(),
                     .offset = p.offset};
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

namespace {

// A run of heads: columns [begin, begin + heads * E) and their weight.
struct Heads {
  NormParameters norm;
  std::int64_t begin, heads;
  std::int64_t cols() const { return heads * norm.weight->cols(); }
  View of(const Tensor& x) const { return x.view().slice_cols(begin, cols()); }
};

void norm_back(Context& context, const Heads& part, const Tensor& before, const Tensor& rstd,
               const Tensor& gradient) {
  const WeightUse weight(context, *part.norm.weight, DType::f32);
  NormBackward args{.kind = NormKind::rms,
                    .dy = part.of(gradient),
                    .h = part.of(before),
                    .weight = weight.view(),
                    .rstd = rstd.view(),
                    .dx = part.of(gradient),
                    .offset = part.norm.offset,
                    .groups = part.heads};
  GradientSink* const sink = part.norm.weight->gradient();
  if (sink != nullptr) args.dweight = sink->adding(context);
  norm_backward(gradient.dtype(), context.kernel, args);
}

}  // namespace

Value norm_heads(Context& context, Value x, std::int64_t heads, std::int64_t kv_heads,
                 const NormParameters& queries, const NormParameters& keys) {
  const Heads q{queries, 0, heads}, k{keys, q.cols(), kv_heads};
  const std::int64_t rows = x.data.rows(), cols = q.cols() + k.cols();
  LODE_ASSERT(queries.weight->cols() == keys.weight->cols() && x.data.cols() >= cols);
  Tensor before = context.activation(rows, cols);
  Tensor rstd_q = context.statistic(rows * heads), rstd_k = context.statistic(rows * kv_heads);
  {
    OpTimer timer(context, "norm", 0, matrix_bytes(before, 4));
    convert(context.kernel, x.data.view().slice_cols(0, cols), before.view());
    for (const auto& [part, rstd] : {std::pair{&q, &rstd_q}, {&k, &rstd_k}}) {
      const WeightUse weight(context, *part->norm.weight, DType::f32);
      norm_forward(before.dtype(), context.kernel,
                   {.kind = NormKind::rms,
                    .eps = part->norm.eps,
                    .x = part->of(before),
                    .weight = weight.view(),
                    .y = part->of(x.data),
                    .rstd = rstd->view(),
                    .offset = part->norm.offset,
                    .groups = part->heads});
    }
  }
  inspect(context, "norm", x.data);
  const bool wants =
      x.wants_gradient() || queries.weight->gradient() != nullptr || keys.weight->gradient() != nullptr;
  Value out = make_value(context, x.data, wants);
  if (!out.wants_gradient()) return out;
  context.tape->record(
      context, "norm", out.gradient,
      [id = out.gradient, x_id = x.gradient, q, k, before = Saved(std::move(before)),
       rstd_q = Saved(std::move(rstd_q)), rstd_k = Saved(std::move(rstd_k))](Context& c, Tape& tape) {
        Tensor gradient = tape.take_gradient(id);
        if (!gradient.unique()) {
          Tensor own = c.activation(gradient.rows(), gradient.cols());
          convert(c.kernel, gradient.view(), own.view());
          gradient = std::move(own);
        }
        OpTimer timer(c, "norm backward", 0, matrix_bytes(before.get(), 3));
        norm_back(c, q, before.get(), rstd_q.get(), gradient);
        norm_back(c, k, before.get(), rstd_k.get(), gradient);
        tape.add_gradient(c, x_id, std::move(gradient));
      });
  return out;
}

}  // namespace lode
