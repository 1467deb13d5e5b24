// GaLore (Zhao et al. 2024, arXiv 2403.03507): Adam on R = G P^T (or P G), P the gradient's leading singular
// vectors, found again every update_interval steps; the moments stay. With N = m / (sqrt(v) + eps) of R:
//   w <- w - lr sqrt(1 - b2^t) / (1 - b1^t) * scale * back(N);  w <- w (1 - lr weight_decay)
// With 8-bit state the change of an 8-bit AdamW step from 0 in the projected space is projected back.
#include <cmath>

#include "autograd/profile.h"
#include "kernels/elementwise.h"
#include "optim/moments_8bit.h"
#include "optim/projection.h"

namespace lode {
namespace {

class Galore : public LowRankOptimizer {
 public:
  explicit Galore(const GaloreOptions& options)
      : LowRankOptimizer({options.targets, options.side, options.rank},
                         options.state_8bit ? make_adamw_8bit({options.adamw}) : make_adamw(options.adamw)),
        options_(options) {}

 private:
  std::vector<std::string> low_rank_names() const override {
    std::vector<std::string> names{"exp_avg", "exp_avg_sq"};
    if (options_.state_8bit) names = moments_8bit_names();
    names.push_back("projector");
    return names;
  }

  std::vector<Tensor> init_low_rank(Context& context, const Projection& p) const override {
    auto state = options_.state_8bit ? make_moments_8bit(context, p.low_rows * p.low_cols)
                                     : zeros(context, {{p.low_rows, p.low_cols}, {p.low_rows, p.low_cols}});
    state.push_back(zeros(context, {{p.rank, p.side}})[0]);
    return state;
  }

  void step_low_rank(Context& context, const Parameter& parameter, const Projection& p,
                     std::vector<Tensor>& state, const StepArguments& arguments) const override {
    const Tensor& projector = state[options_.state_8bit ? 4 : 2];
    if ((arguments.time - 1) % options_.update_interval == 0) {
      OpTimer timer(context, "galore subspace");
      const SubspaceOptions how{.exact = options_.exact_svd,
                                .warm = arguments.time > 1,
                                .key = make_key(0, "galore/" + parameter.name)};
      find_subspace(context, parameter.gradient(), p, how, projector.view());
    }
    const auto flops = 4.0 * static_cast<double>(parameter.numel() * p.rank);
    OpTimer timer(context, "galore", flops);
    Tensor low = scratch(context, p.low_rows, p.low_cols),
           full = scratch(context, parameter.rows, parameter.cols);
    multiply_in_run_precision(context, p.forward(projector.view(), parameter.gradient(), low.view()));
    // low becomes the change of the projected weights, up to the rate.
    double rate = -options_.scale;
    if (options_.state_8bit) {
      change_8bit(context, low, state, arguments);
    } else {
      adam_direction_of(context, options_.adamw, low, state, arguments);
      rate = options_.scale * corrected_rate(options_.adamw, arguments);
    }
    multiply_in_run_precision(context, p.back(projector.view(), low.view(), full.view()));
    const double decay = parameter.decay ? options_.adamw.weight_decay : 0.0;
    update_weights(context.kernel, {.weight = arguments.weight,
                                    .update = full.view(),
                                    .rate = rate,
                                    .after = 1 - arguments.learning_rate * decay});
  }

  void change_8bit(Context& context, Tensor& low, std::vector<Tensor>& state,
                   const StepArguments& arguments) const {
    Tensor weight = scratch(context, low.rows(), low.cols());
    fill(context.kernel, weight.view(), 0.0f);
    AdamW8bitStep step = moments_8bit_step(options_.adamw, state, arguments);
    step.weight = weight.view();
    step.grad = low.view();
    step.weight_decay = 0;
    adamw_8bit_step(context.kernel, step);
    low = std::move(weight);
  }

  GaloreOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_galore(const GaloreOptions& options) {
  return std::make_unique<Galore>(options);
}

}  // namespace lode
