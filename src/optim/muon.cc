// Muon: momentum, orthogonalised. Of a linear module's matrix [m, n], with u = (1 - mu) g + mu M (Nesterov):
//   M <- mu M + (1 - mu) g;  X = u / max(|u|, eps);  steps times, with the Gram matrix A of X's smaller side,
//   X <- a X + (b A + c A^2) X;  w <- w (1 - lr weight_decay) - lr scale X
// (a, b, c) = (3.4445, -4.7750, 2.0315): singular values go to within about [0.7, 1.2]. The products run in
// the run's precision, bf16 operands or f32. Other parameters get AdamW.
#include <cmath>

#include "autograd/profile.h"
#include "kernels/elementwise.h"
#include "kernels/optimizer.h"
#include "optim/optimizers.h"
#include "optim/state.h"

namespace lode {
namespace {

constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;

// The matrices of an iteration, made once a step.
struct NewtonSchulz {
  Tensor x, product, gram, square;
  bool tall;

  NewtonSchulz(Context& context, std::int64_t rows, std::int64_t cols)
      : x(scratch(context, rows, cols, context.dtype)),
        product(scratch(context, rows, cols)),
        tall(rows > cols) {
    const std::int64_t side = std::min(rows, cols);
    gram = scratch(context, side, side, context.dtype);
    square = scratch(context, side, side);
  }

  void iterate(Context& context) {
    // A = X X^T, or X^T X of a tall matrix; the polynomial is the same.
    multiply_symmetric(
        context, {.a = x.view(), .b = x.view(), .transpose_a = tall, .transpose_b = !tall, .c = gram.view()});
    multiply_symmetric(context, {.a = gram.view(), .b = gram.view(), .c = square.view()});
    combine(context.kernel,
            {.x = gram.view(), .y = square.view(), .out = gram.view(), .x_factor = kB, .y_factor = kC});
    if (tall) {
      multiply(context, {.a = x.view(), .b = gram.view(), .c = product.view()});
    } else {
      multiply(context, {.a = gram.view(), .b = x.view(), .c = product.view()});
    }
    combine(context.kernel,
            {.x = x.view(), .y = product.view(), .out = x.view(), .x_factor = kA, .y_factor = 1});
  }
};

class Muon : public Optimizer {
 public:
  explicit Muon(const MuonOptions& options) : options_(options), adamw_(make_adamw(options.adamw)) {}

  std::vector<std::string> state_names(const Parameter& parameter) const override {
    if (!takes(parameter)) return adamw_->state_names(parameter);
    return {"momentum_buffer"};
  }

  std::vector<Tensor> init_one(Context& context, const Parameter& parameter) const override {
    if (!takes(parameter)) return adamw_->init_one(context, parameter);
    return zeros(context, {{parameter.rows, parameter.cols}});
  }

  void step_one(Context& context, const Parameter& parameter, std::vector<Tensor>& state,
                const StepArguments& arguments) const override {
    if (!takes(parameter)) return adamw_->step_one(context, parameter, state, arguments);
    const std::int64_t rows = parameter.rows, cols = parameter.cols;
    const auto small = static_cast<double>(std::min(rows, cols)),
               large = static_cast<double>(std::max(rows, cols));
    OpTimer timer(context, "muon", options_.steps * (4 * small * small * large + 2 * small * small * small));
    NewtonSchulz work(context, rows, cols);
    const View direction = work.product.view();
    const double mu = options_.momentum;
    momentum_step(context.kernel, {.grad = parameter.gradient(),
                                   .momentum = state[0].view(),
                                   .output = direction,
                                   .keep = mu,
                                   .add = 1 - mu,
                                   .out_grad = options_.nesterov ? 1 - mu : 0,
                                   .out_momentum = options_.nesterov ? mu : 1,
                                   .grad_scale = arguments.grad_scale});
    const double norm = std::sqrt(sum_of_squares(context.kernel, direction));
    combine(context.kernel, {.x = {},
                             .y = direction,
                             .out = work.x.view(),
                             .x_factor = 0,
                             .y_factor = 1 / std::max(norm, options_.eps)});
    for (int i = 0; i < options_.steps; ++i) work.iterate(context);
    convert(context.kernel, work.x.view(), direction);
    const double lr = arguments.learning_rate;
    update_weights(context.kernel, {.weight = arguments.weight,
                                    .update = direction,
                                    .before = 1 - lr * (parameter.decay ? options_.adamw.weight_decay : 0.0),
                                    .rate = lr * scale_of(rows, cols)});
  }

 private:
  static bool takes(const Parameter& parameter) {
    return !parameter.vector && parameter.kind == ModuleKind::linear;
  }

  double scale_of(std::int64_t rows, std::int64_t cols) const {
    const double ratio = static_cast<double>(rows) / static_cast<double>(cols);
    switch (options_.scale) {
      case MuonScale::original:
        return std::sqrt(std::max(1.0, ratio));
      case MuonScale::match_rms:
        return 0.2 * std::sqrt(static_cast<double>(std::max(rows, cols)));
      case MuonScale::spectral:
        return std::sqrt(ratio);
    }
    return 1;
  }

  MuonOptions options_;
  std::unique_ptr<Optimizer> adamw_;
};

}  // namespace

std::unique_ptr<Optimizer> make_muon(const MuonOptions& options) {
  return std::make_unique<Muon>(options);
}

}  // namespace lode
