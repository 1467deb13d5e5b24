// APOLLO (Zhu et al. 2024, arXiv 2412.05270). R = G P^T (or P G) with P random, its entries of deviation
// 1 / sqrt(rank), drawn again every update_interval steps; Adam's N = m / (sqrt(v) + eps) of R, moments kept.
//   s_j = |N_j| / (|R_j| + 1e-8) for each channel j of the side that is not projected, or one ratio (tensor)
//   S = s * G;  l = max(|S| / (q + 1e-8), 1.01) / 1.01, q the |S| of the step before after its division by l
//   w <- w - lr sqrt(1 - b2^t) / (1 - b1^t) * sqrt(scale) * S / l;  w <- w (1 - lr weight_decay)
// scale_front: sqrt(scale) counts in |S|. P is made again from its key, and is no state.
#include <cmath>

#include "autograd/profile.h"
#include "kernels/elementwise.h"
#include "kernels/optimizer.h"
#include "optim/projection.h"

namespace lode {
namespace {

class Apollo : public LowRankOptimizer {
 public:
  explicit Apollo(const ApolloOptions& options)
      : LowRankOptimizer({options.targets, options.side, options.rank}, make_adamw(options.adamw)),
        options_(options) {}

 private:
  std::vector<std::string> low_rank_names() const override {
    return {"exp_avg", "exp_avg_sq", "scaled_grad"};
  }

  std::vector<Tensor> init_low_rank(Context& context, const Projection& p) const override {
    return zeros(context, {{p.low_rows, p.low_cols}, {p.low_rows, p.low_cols}, {1, 1}});
  }

  void step_low_rank(Context& context, const Parameter& parameter, const Projection& p,
                     std::vector<Tensor>& state, const StepArguments& arguments) const override {
    const auto flops = 2.0 * static_cast<double>(parameter.numel() * p.rank);
    OpTimer timer(context, "apollo", flops);
    const View grad = parameter.gradient();
    Workspace::Scope workspace(*context.kernel.workspace);
    const std::int64_t channels = p.right ? parameter.rows : parameter.cols;
    float* factor = workspace.take<float>(channels);
    {
      Tensor projector = scratch(context, p.rank, p.side);
      draw(context, parameter.name, (arguments.time - 1) / options_.update_interval, projector.view());
      Tensor low = scratch(context, p.low_rows, p.low_cols);
      multiply_in_run_precision(context, p.forward(projector.view(), grad, low.view()));
      find_factors(context, p, low, state, arguments, factor);
    }
    const float* row = p.right ? factor : nullptr;
    const float* col = p.right ? nullptr : factor;
    // |S| with the scale where it counts.
    const double scale = std::sqrt(options_.scale);
    const double size = (options_.scale_front ? scale : 1.0) * arguments.grad_scale *
                        std::sqrt(scaled_squares(context.kernel, grad, row, col));
    const double rate = corrected_rate(options_.adamw, arguments) / limit(size, arguments.time, state[2]);
    const double decay = parameter.decay ? options_.adamw.weight_decay : 0.0;
    update_weights(context.kernel, {.weight = arguments.weight,
                                    .update = grad,
                                    .row = row,
                                    .col = col,
                                    .rate = rate * scale * arguments.grad_scale,
                                    .after = 1 - arguments.learning_rate * decay});
  }

  void draw(Context& context, const std::string& name, std::int64_t refresh, View projector) const {
    if (options_.draw) return options_.draw(name, refresh, projector);
    fill_random_projector(context, make_key(options_.seed, format("apollo/{}/{}", name, refresh)), projector);
  }

  // factor[j] of each channel; R in `low` is used up.
  void find_factors(Context& context, const Projection& p, Tensor& low, std::vector<Tensor>& state,
                    const StepArguments& arguments, float* factor) const {
    Workspace::Scope workspace(*context.kernel.workspace);
    const std::int64_t channels = p.right ? p.low_rows : p.low_cols;
    float* projected = workspace.take<float>(channels);
    const auto squares = p.right ? row_squares : col_squares;
    squares(context.kernel, low.view(), projected);
    adam_direction_of(context, options_.adamw, low, state, arguments);
    squares(context.kernel, low.view(), factor);
    double all_directions = 0, all_projected = 0;
    for (std::int64_t j = 0; j < channels; ++j) {
      all_directions += factor[j];
      all_projected += projected[j];
      factor[j] = ratio(factor[j], projected[j], arguments.grad_scale);
    }
    if (options_.scale_type == ApolloScale::tensor)
      std::fill_n(factor, channels, ratio(all_directions, all_projected, arguments.grad_scale));
  }

  static float ratio(double direction, double projected, double grad_scale) {
    return static_cast<float>(std::sqrt(direction) / (std::sqrt(projected) * grad_scale + 1e-8));
  }

  // What S is divided by; the state becomes the divided norm.
  double limit(double size, std::int64_t time, Tensor& state) const {
    if (!options_.limit_growth) return 1;
    float& last = *state.view().row<float>(0);
    const double divisor = time == 1 ? 1 : std::max(size / (last + 1e-8), 1.01) / 1.01;
    last = static_cast<float>(size / divisor);
    return divisor;
  }

  ApolloOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_apollo(const ApolloOptions& options) {
  if (options.side == ProjectedSide::reverse_standard)
    fail(ErrorKind::usage, "APOLLO: the projected side is standard, left or right");
  return std::make_unique<Apollo>(options);
}

}  // namespace lode
