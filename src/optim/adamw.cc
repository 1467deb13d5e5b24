// AdamW; the formula is in kernels/optimizer.h.
#include <cmath>

#include "autograd/profile.h"
#include "kernels/elementwise.h"
#include "kernels/optimizer.h"
#include "optim/optimizers.h"
#include "optim/state.h"

namespace lode {
namespace {

class AdamW : public Optimizer {
 public:
  explicit AdamW(const AdamWOptions& options) : options_(options) {}

  std::vector<std::string> state_names(const Parameter&) const override { return {"exp_avg", "exp_avg_sq"}; }

  std::vector<Tensor> init_one(Context& context, const Parameter& parameter) const override {
    return zeros(context, {{parameter.rows, parameter.cols}, {parameter.rows, parameter.cols}});
  }

  void step_one(Context& context, const Parameter& parameter, std::vector<Tensor>& state,
                const StepArguments& arguments) const override {
    const auto time = static_cast<double>(arguments.time);
    AdamWStep step{.weight = arguments.weight,
                   .grad = parameter.gradient(),
                   .exp_avg = state[0].view(),
                   .exp_avg_sq = state[1].view(),
                   .lr = arguments.learning_rate,
                   .beta1 = options_.beta1,
                   .beta2 = options_.beta2,
                   .eps = options_.eps,
                   .weight_decay = parameter.decay ? options_.weight_decay : 0.0,
                   .bias_correction1 = 1 - std::pow(options_.beta1, time),
                   .bias_correction2 = 1 - std::pow(options_.beta2, time),
                   .grad_scale = arguments.grad_scale};
    OpTimer timer(context, "adamw", 0,
                  static_cast<double>(parameter.numel()) * (step.weight.copy.data == nullptr ? 28 : 30));
    adamw_step(context.kernel, step);
  }

 private:
  AdamWOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const AdamWOptions& options) {
  return std::make_unique<AdamW>(options);
}

}  // namespace lode
