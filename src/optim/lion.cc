// Lion; the formula is in kernels/optimizer.h.
#include "autograd/profile.h"
#include "kernels/optimizer.h"
#include "optim/optimizers.h"
#include "optim/state.h"

namespace lode {
namespace {

class Lion : public Optimizer {
 public:
  explicit Lion(const LionOptions& options) : options_(options) {}

  std::vector<std::string> state_names(const Parameter&) const override { return {"exp_avg"}; }

  std::vector<Tensor> init_one(Context& context, const Parameter& parameter) const override {
    return zeros(context, {{parameter.rows, parameter.cols}});
  }

  void step_one(Context& context, const Parameter& parameter, std::vector<Tensor>& state,
                const StepArguments& arguments) const override {
    OpTimer timer(context, "lion", 0, static_cast<double>(parameter.numel()) * 20);
    lion_step(context.kernel, {.weight = arguments.weight,
                               .grad = parameter.gradient(),
                               .exp_avg = state[0].view(),
                               .lr = arguments.learning_rate,
                               .beta1 = options_.beta1,
                               .beta2 = options_.beta2,
                               .weight_decay = parameter.decay ? options_.weight_decay : 0.0,
                               .grad_scale = arguments.grad_scale});
  }

 private:
  LionOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lion(const LionOptions& options) {
  return std::make_unique<Lion>(options);
}

}  // namespace lode
