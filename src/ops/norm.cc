#include "ops/norm.h"

#include "autograd/profile.h"
#include "kernels/elementwise.h"

namespace lode {
namespace {

double matrix_bytes(const Tensor& x, int passes) {
  return static_cast<double>(x.bytes()) * passes;
}

struct NormSaved {
  Saved h, rstd, mean;  // mean: of layer norms
};

void run_norm(Context& context, const NormParameters& p, NormForward args) {
  const WeightUse weight(context, *p.weight, DType::f32);
  args.kind = p.kind;
  args.eps = p.eps;
  args.offset = p.offset;
  args.weight = weight.view();
  if (p.bias == nullptr) return norm_forward(args.y.dtype, context.kernel, args);
  const WeightUse bias(context, *p.bias, DType::f32);
  args.bias = bias.view();
  norm_forward(args.y.dtype, context.kernel, args);
}

// y of the h that was normalised: the sum is rounded before the norm reads it, so these are the bits that the
// forward had.
std::shared_ptr<LaterTensor> recomputed_norm(const NormParameters& p, const NormSaved& saved) {
  return std::make_shared<RecomputedTensor>([p, saved](Context& c) {
    const Tensor& h = saved.h.get(c);
    Tensor y = c.activation(h.rows(), h.cols());
    OpTimer timer(c, "norm", 0, matrix_bytes(h, 2));
    NormForward args{.x = h.view(), .h = h.view(), .y = y.view(), .rstd = saved.rstd.get(c).view()};
    if (p.kind == NormKind::layer) args.mean = saved.mean.get(c).view();
    run_norm(c, p, args);
    return y;
  });
}

void norm_gradient(Context& context, Tape& tape, const NormParameters& p, const NormSaved& saved,
                   GradientId y_id, GradientId h_id, GradientId x_id, GradientId delta_id) {
  Tensor dy = tape.take_gradient(y_id);
  Tensor dh = h_id == kNoGradient ? Tensor() : tape.take_gradient(h_id);
  const Tensor& h = saved.h.get(context);
  OpTimer timer(context, "norm backward", 0, matrix_bytes(h, dh.defined() ? 4 : 3));
  // dy is ours alone in practice: its memory becomes dx.
  Tensor dx = dy.unique() ? dy : context.activation(h.rows(), h.cols());
  const WeightUse weight(context, *p.weight, DType::f32);
  NormBackward args{.kind = p.kind,
                    .dy = dy.view(),
                    .h = h.view(),
                    .weight = weight.view(),
                    .rstd = saved.rstd.get(context).view()};
  args.offset = p.offset;
  if (p.kind == NormKind::layer) args.mean = saved.mean.get(context).view();
  if (dh.defined()) args.dh = dh.view();
  args.dx = dx.view();
  if (p.weight->gradient() != nullptr) args.dweight = p.weight->gradient()->adding(context);
  if (p.bias != nullptr && p.bias->gradient() != nullptr) args.dbias = p.bias->gradient()->adding(context);
  norm_backward(h.dtype(), context.kernel, args);
  if (delta_id != kNoGradient) tape.add_gradient(context, delta_id, dx);
  tape.add_gradient(context, x_id, std::move(dx));
}

void record_add(Context& context, GradientId sum, GradientId x, GradientId delta) {
  context.tape->record(context, "add", sum, [sum, x, delta](Context& c, Tape& tape) {
    Tensor gradient = tape.take_gradient(sum);
    tape.add_gradient(c, delta, gradient);
    tape.add_gradient(c, x, std::move(gradient));
  });
}

}  // namespace

Value add(Context& context, const Value& x, const Value& delta) {
  Tensor h = context.activation(x.data.rows(), x.data.cols());
  {
    OpTimer timer(context, "add", 0, matrix_bytes(h, 3));
    add_rows(h.dtype(), context.kernel, x.data.view(), delta.data.view(), h.view());
  }
  inspect(context, "add", h);
  Value out = make_value(context, std::move(h), x.wants_gradient() || delta.wants_gradient());
  if (out.wants_gradient()) record_add(context, out.gradient, x.gradient, delta.gradient);
  return out;
}

AddNorm add_norm(Context& context, const Value& x, const Value* delta, const NormParameters& p,
                 SavePolicy policy) {
  const std::int64_t rows = x.data.rows(), cols = x.data.cols();
  if (p.weight->cols() != cols ||
      (delta != nullptr && (delta->data.rows() != rows || delta->data.cols() != cols))) {
    fail(ErrorKind::internal, "norm: x is [{}, {}], the weight has {} channels", rows, cols,
         p.weight->cols());
  }
  Tensor h = delta == nullptr ? x.data : context.activation(rows, cols);
  Tensor y = context.activation(rows, cols);
  const Tensor rstd = context.statistic(rows);
  const Tensor mean = p.kind == NormKind::layer ? context.statistic(rows) : Tensor();
  {
    OpTimer timer(context, "norm", 0, matrix_bytes(h, delta == nullptr ? 2 : 4));
    NormForward args{.x = x.data.view(), .h = h.view(), .y = y.view(), .rstd = rstd.view()};
    if (delta != nullptr) args.delta = delta->data.view();
    if (p.kind == NormKind::layer) args.mean = mean.view();
    run_norm(context, p, args);
  }
  inspect(context, "norm", y);

  const bool wants =
      x.wants_gradient() || (delta != nullptr && delta->wants_gradient()) || p.weight->gradient() != nullptr;
  AddNorm out;
  // Without delta h is x.
  out.h = delta == nullptr ? x : make_value(context, h, wants);
  out.y = make_value(context, std::move(y), wants);
  if (!out.y.wants_gradient()) return out;
  NormSaved saved{delta == nullptr ? x.saved(context) : save(context, h), save(context, rstd),
                  save(context, mean)};
  if (policy == SavePolicy::recompute) out.y.later = recomputed_norm(p, saved);
  const GradientId h_id = out.h.gradient;
  const GradientId delta_id = delta == nullptr ? kNoGradient : delta->gradient;
  // Runs after the norm's node, which takes h's gradient along: does something only when nobody has used y.
  if (delta != nullptr) record_add(context, h_id, x.gradient, delta_id);
  // Whatever has reached h when this node runs is all that will: its other users come later on the tape.
  context.tape->record(
      context, "norm", out.y.gradient,
      [p, saved = std::move(saved), y_id = out.y.gradient, h_id, x_id = x.gradient, delta_id](
          Context& c, Tape& tape) { norm_gradient(c, tape, p, saved, y_id, h_id, x_id, delta_id); });
  context.tape->uses(context, {p.weight, p.bias});
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
  Value out = make_value(context, std::move(x.data), wants);
  if (!out.wants_gradient()) return out;
  context.tape->record(
      context, "norm", out.gradient,
      [id = out.gradient, x_id = x.gradient, q, k, before = save(context, before),
       rstd_q = save(context, rstd_q), rstd_k = save(context, rstd_k)](Context& c, Tape& tape) {
        Tensor gradient = tape.take_gradient(id);
        if (!gradient.unique()) {
          Tensor own = c.activation(gradient.rows(), gradient.cols());
          convert(c.kernel, gradient.view(), own.view());
          gradient = std::move(own);
        }
        OpTimer timer(c, "norm backward", 0, matrix_bytes(before.get(c), 3));
        norm_back(c, q, before.get(c), rstd_q.get(c), gradient);
        norm_back(c, k, before.get(c), rstd_k.get(c), gradient);
        tape.add_gradient(c, x_id, std::move(gradient));
      });
  context.tape->uses(context, {queries.weight, keys.weight});
  return out;
}

}  // namespace lode
