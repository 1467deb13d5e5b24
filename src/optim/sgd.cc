// SGD with momentum; the formula is in kernels/optimizer.h.
#include "autograd/profile.h"
#include "kernels/optimizer.h"
#include "optim/optimizers.h"
#include "optim/state.h"

namespace lode {
namespace {

class Sgd : public Optimizer {
 public:
  explicit Sgd(const SgdOptions& options) : options_(options) {}

  std::vector<std::string> state_names(const Parameter&) const override {
    if (options_.momentum == 0) return {};
    return {"momentum_buffer"};
  }

  std::vector<Tensor> init_one(Context& context, const Parameter& parameter) const override {
    if (options_.momentum == 0) return {};
    return zeros(context, {{parameter.rows, parameter.cols}});
  }

  void step_one(Context& context, const Parameter& parameter, std::vector<Tensor>& state,
                const StepArguments& arguments) const override {
    OpTimer timer(context, "sgd", 0, static_cast<double>(parameter.numel()) * (state.empty() ? 12 : 20));
    sgd_step(context.kernel, {.weight = arguments.weight,
                              .grad = parameter.gradient(),
                              .momentum_buffer = state.empty() ? View{} : state[0].view(),
                              .lr = arguments.learning_rate,
                              .momentum = options_.momentum,
                              .dampening = options_.dampening,
                              .weight_decay = parameter.decay ? options_.weight_decay : 0.0,
                              .nesterov = options_.nesterov,
                              .first = arguments.time == 1,
                              .grad_scale = arguments.grad_scale});
  }

 private:
  SgdOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const SgdOptions& options) {
  if (options.nesterov && (options.momentum <= 0 || options.dampening != 0)) {
    fail(ErrorKind::usage, "SGD: nesterov needs a momentum above 0 (it is {}) and no dampening (it is {})",
         options.momentum, options.dampening);
  }
  return std::make_unique<Sgd>(options);
}

}  // namespace lode
