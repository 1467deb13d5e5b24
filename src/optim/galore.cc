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

class Galore : public Optimizer {
 public:
  explicit Galore(const GaloreOptions& options)
      : options_(options),
        rest_(options.state_8bit ? make_adamw_8bit({options.adamw}) : make_adamw(options.adamw)) {}

  std::vector<std::string> state_names(const Parameter& parameter) const override {
    if (!takes(parameter)) return rest_->state_names(parameter);
    std::vector<std::string> names{"exp_avg", "exp_avg_sq"};
    if (options_.state_8bit) names = moments_8bit_names();
    names.push_back("projector");
    return names;
  }

  std::vector<Tensor> init_one(Context& context, const Parameter& parameter) const override {
    if (!takes(parameter)) return rest_->init_one(context, parameter);
    const Projection p = projection(parameter);
    auto state = options_.state_8bit ? make_moments_8bit(context, p.low_rows * p.low_cols)
                                     : zeros(context, {{p.low_rows, p.low_cols}, {p.low_rows, p.low_cols}});
    state.push_back(zeros(context, {{p.rank, p.side}})[0]);
    return state;
  }

  void step_one(Context& context, const Parameter& parameter, std::vector<Tensor>& state,
                const StepArguments& arguments) const override {
    if (!takes(parameter)) return rest_->step_one(context, parameter, state, arguments);
    const Projection p = projection(parameter);
    const Tensor& projector = state.back();
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
    p.forward(context, projector.view(), parameter.gradient(), low.view());
    // low becomes the change of the projected weights, up to rate_of.
    if (options_.state_8bit) {
      change_8bit(context, low, state, arguments);
    } else {
      change(context, low, state, arguments);
    }
    p.back(context, projector.view(), low.view(), full.view());
    const double decay = parameter.decay ? options_.adamw.weight_decay : 0.0;
    update_weights(context.kernel, {.weight = parameter.values(),
                                    .update = full.view(),
                                    .copy = parameter.bf16_copy(),
                                    .rate = rate_of(arguments),
                                    .after = 1 - arguments.learning_rate * decay});
  }

 private:
  bool takes(const Parameter& parameter) const { return is_target(parameter, options_.targets); }
  Projection projection(const Parameter& parameter) const {
    return {parameter, options_.side, options_.rank};
  }

  // Of what change() and change_8bit() leave.
  double rate_of(const StepArguments& arguments) const {
    if (options_.state_8bit) return -options_.scale;
    const auto time = static_cast<double>(arguments.time);
    return arguments.learning_rate * options_.scale * std::sqrt(1 - std::pow(options_.adamw.beta2, time)) /
           (1 - std::pow(options_.adamw.beta1, time));
  }

  void change(Context& context, Tensor& low, std::vector<Tensor>& state,
              const StepArguments& arguments) const {
    adam_direction(context.kernel, {.grad = low.view(),
                                    .exp_avg = state[0].view(),
                                    .exp_avg_sq = state[1].view(),
                                    .direction = low.view(),
                                    .beta1 = options_.adamw.beta1,
                                    .beta2 = options_.adamw.beta2,
                                    .eps = options_.adamw.eps,
                                    .grad_scale = arguments.grad_scale});
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
  std::unique_ptr<Optimizer> rest_;
};

}  // namespace

std::unique_ptr<Optimizer> make_galore(const GaloreOptions& options) {
  return std::make_unique<Galore>(options);
}

}  // namespace lode
