#include "ops/linear.h"

#include "autograd/profile.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "ops/weight_product.h"

namespace lode {
namespace {

double product_flops(std::int64_t m, std::int64_t n, std::int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

// Added to what is there by the product itself, when nobody else reads that.
void add_input_gradient(Context& context, Tape& tape, GradientId x_id, const Tensor& dy, Weight& weight) {
  OpTimer timer(context, "linear dX", product_flops(dy.rows(), weight.cols(), weight.rows()));
  Tensor dx = tape.take_gradient(x_id);
  const bool accumulate = dx.defined() && dx.unique();
  Tensor before;
  if (!accumulate) {
    before = std::move(dx);
    dx = context.activation(dy.rows(), weight.cols());
  }
  WeightProduct(context, weight).backward(dy.view(), accumulate, dx.view());
  tape.add_gradient(context, x_id, std::move(dx));
  if (before.defined()) tape.add_gradient(context, x_id, std::move(before));
}

void weight_gradient(Context& context, const Tensor& dy, const Tensor& x, Weight& weight, Weight* bias) {
  OpTimer timer(context, "linear dW", product_flops(weight.rows(), weight.cols(), dy.rows()));
  if (weight.gradient() != nullptr) {
    const auto target = weight.gradient()->target(context);
    matmul(context.kernel, {.a = dy.view(),
                            .b = x.view(),
                            .transpose_a = true,
                            .accumulate = target.accumulate,
                            .c = target.view});
  }
  if (bias != nullptr && bias->gradient() != nullptr) {
    const auto bias_target = bias->gradient()->target(context);
    sum_rows(dy.dtype(), context.kernel, dy.view(), bias_target.accumulate, bias_target.view);
  }
}

}  // namespace

Value linear(Context& context, const Value& x, Weight& weight, Weight* bias) {
  if (x.data.cols() != weight.cols() || (bias != nullptr && bias->cols() != weight.rows())) {
    fail(ErrorKind::internal, "linear: x is [{}, {}], the weight [{}, {}]", x.data.rows(), x.data.cols(),
         weight.rows(), weight.cols());
  }
  Tensor y = context.activation(x.data.rows(), weight.rows());
  {
    OpTimer timer(context, "linear", product_flops(y.rows(), y.cols(), x.data.cols()));
    const WeightProduct product(context, weight);
    if (bias == nullptr) {
      product.forward(x.data.view(), {}, y.view());
    } else {
      const WeightUse b(context, *bias, DType::f32);
      product.forward(x.data.view(), b.view(), y.view());
    }
  }
  inspect(context, "linear", y);

  const bool wants_dw = weight.gradient() != nullptr || (bias != nullptr && bias->gradient() != nullptr);
  Value out = make_value(context, std::move(y), x.wants_gradient() || wants_dw);
  if (!out.wants_gradient()) return out;
  const GradientId id = out.gradient, x_id = x.gradient;
  if (x.wants_gradient()) {
    context.tape->record(context, "linear", id, [id, x_id, w = &weight](Context& c, Tape& tape) {
      const Tensor dy = tape.take_gradient(id);
      add_input_gradient(c, tape, x_id, dy, *w);
    });
    context.tape->uses(context, {&weight});
  }
  if (wants_dw) {
    // Runs before dX, so that x is free before dX is made.
    const bool last = !x.wants_gradient();
    context.tape->record(context, "linear", id,
                         [id, last, saved = x.saved(context), w = &weight, bias](Context& c, Tape& tape) {
                           const Tensor dy = last ? tape.take_gradient(id) : tape.gradient(id);
                           weight_gradient(c, dy, saved.get(c), *w, bias);
                         });
    context.tape->uses(context, {&weight, bias});
  }
  return out;
}

}  // namespace lode
