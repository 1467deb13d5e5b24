// Adafactor (Shazeer and Stern 2018, arXiv 1804.04235), as transformers has it. Of a matrix, with t counted
// from 1 and b = 1 - t^decay_rate:
//   R <- b R + (1 - b) mean over columns of (g^2 + eps1);  C the same over rows
//   U = g / sqrt(R / mean(R)) / sqrt(C);  U <- U / max(1, rms(U) / clip_threshold)
// of a vector U = g / sqrt(v), v a moving mean of g^2 + eps1. rate: the schedule's, or min(1e-2, 1 / sqrt(t))
// (relative_step), times max(eps2, rms(w)) with scale_parameter. w <- w (1 - rate weight_decay) - rate U, or
// a moving mean m of rate U in its place (beta1).
#include <cmath>

#include "autograd/profile.h"
#include "kernels/elementwise.h"
#include "kernels/optimizer.h"
#include "optim/optimizers.h"
#include "optim/state.h"

namespace lode {
namespace {

// moment <- b * moment + (1 - b) * (squares / count + eps)
void average(Tensor& moment, const float* squares, std::int64_t count, double scale, double eps, double b) {
  float* values = moment.view().row<float>(0);
  for (std::int64_t i = 0; i < moment.numel(); ++i) {
    const double mean = squares[i] * scale / static_cast<double>(count) + eps;
    values[i] = static_cast<float>(b * values[i] + (1 - b) * mean);
  }
}

class Adafactor : public Optimizer {
 public:
  explicit Adafactor(const AdafactorOptions& options) : options_(options) {}

  std::vector<std::string> state_names(const Parameter& parameter) const override {
    std::vector<std::string> names;
    if (parameter.vector) {
      names = {"exp_avg_sq"};
    } else {
      names = {"exp_avg_sq_row", "exp_avg_sq_col"};
    }
    if (options_.beta1 != 0) names.push_back("exp_avg");
    return names;
  }

  std::vector<Tensor> init_one(Context& context, const Parameter& parameter) const override {
    auto state = parameter.vector ? zeros(context, {{1, parameter.cols}})
                                  : zeros(context, {{1, parameter.rows}, {1, parameter.cols}});
    if (options_.beta1 != 0) state.push_back(zeros(context, {{parameter.rows, parameter.cols}})[0]);
    return state;
  }

  void step_one(Context& context, const Parameter& parameter, std::vector<Tensor>& state,
                const StepArguments& arguments) const override {
    OpTimer timer(context, "adafactor", 0, static_cast<double>(parameter.numel()) * 20);
    const auto t = static_cast<double>(arguments.time);
    const double b = 1 - std::pow(t, options_.decay_rate);
    const double scale = arguments.grad_scale;
    const View grad = parameter.gradient();
    // U = scale * row[r] * col[c] * g
    Workspace::Scope workspace(*context.kernel.workspace);
    float* row = parameter.vector ? nullptr : workspace.take<float>(parameter.rows);
    float* col = workspace.take<float>(parameter.cols);
    if (!parameter.vector) {
      row_squares(context.kernel, grad, row);
      average(state[0], row, parameter.cols, scale * scale, options_.eps1, b);
    }
    col_squares(context.kernel, grad, col);
    Tensor& moment = parameter.vector ? state[0] : state[1];
    average(moment, col, parameter.rows, scale * scale, options_.eps1, b);
    inverse_roots(moment, 1, col);
    if (!parameter.vector) {
      double mean = 0;
      const float* rows = state[0].view().row<float>(0);
      for (std::int64_t r = 0; r < parameter.rows; ++r) mean += rows[r];
      inverse_roots(state[0], mean / static_cast<double>(parameter.rows), row);
    }
    const auto numel = static_cast<double>(parameter.numel());
    const double rms = scale * std::sqrt(scaled_squares(context.kernel, grad, row, col) / numel);
    const double rate = rate_of(context, parameter, arguments);
    const double factor = rate * scale / std::max(1.0, rms / options_.clip_threshold);
    apply(context, parameter, state, arguments, row, col, factor, rate);
  }

 private:
  // out = sqrt(mean / moment)
  static void inverse_roots(const Tensor& moment, double mean, float* out) {
    const float* values = moment.view().row<float>(0);
    for (std::int64_t i = 0; i < moment.numel(); ++i) {
      out[i] = static_cast<float>(std::sqrt(mean / static_cast<double>(values[i])));
    }
  }

  double rate_of(Context& context, const Parameter& parameter, const StepArguments& arguments) const {
    double rate = arguments.learning_rate;
    if (options_.relative_step) {
      const auto t = static_cast<double>(arguments.time);
      rate = std::min(options_.warmup_init ? 1e-6 * t : 1e-2, 1 / std::sqrt(t));
    }
    if (options_.scale_parameter) {
      const double squares = sum_of_squares(context.kernel, parameter.values());
      rate *= std::max(options_.eps2, std::sqrt(squares / static_cast<double>(parameter.numel())));
    }
    return rate;
  }

  void apply(Context& context, const Parameter& parameter, std::vector<Tensor>& state,
             const StepArguments& arguments, const float* row, const float* col, double factor,
             double rate) const {
    WeightUpdate update{.weight = arguments.weight,
                        .update = parameter.gradient(),
                        .row = row,
                        .col = col,
                        .before = 1 - rate * (parameter.decay ? options_.weight_decay : 0.0),
                        .rate = factor};
    if (options_.beta1 != 0) {
      const View mean = state[parameter.vector ? 1 : 2].view();
      update_weights(context.kernel, {.weight = mean,
                                      .update = parameter.gradient(),
                                      .row = row,
                                      .col = col,
                                      .before = options_.beta1,
                                      .rate = -(1 - options_.beta1) * factor});
      update.update = mean;
      update.row = update.col = nullptr;
      update.rate = 1;
    }
    update_weights(context.kernel, update);
  }

  AdafactorOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(const AdafactorOptions& options) {
  if (options.warmup_init && !options.relative_step)
    fail(ErrorKind::usage, "Adafactor: warmup_init needs relative_step");
  return std::make_unique<Adafactor>(options);
}

}  // namespace lode
