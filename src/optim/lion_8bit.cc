// Lion with its moment in 8 bits; the formula is in kernels/optimizer.h. State as in bitsandbytes: state1 is
// the codes (bytes, four to an i32 element), absmax1 one f32 a block.
#include "autograd/profile.h"
#include "kernels/optimizer.h"
#include "optim/moments_8bit.h"
#include "optim/optimizers.h"
#include "optim/state.h"

namespace lode {
namespace {

class Lion8bit : public Optimizer {
 public:
  explicit Lion8bit(const Lion8bitOptions& options) : options_(options), lion_(make_lion(options.lion)) {}

  std::vector<std::string> state_names(const Parameter& parameter) const override {
    if (small(parameter)) return lion_->state_names(parameter);
    return {"state1", "absmax1"};
  }

  std::vector<Tensor> init_one(Context& context, const Parameter& parameter) const override {
    return small(parameter) ? lion_->init_one(context, parameter)
                            : make_moment_8bit(context, parameter.numel(), true);
  }

  void step_one(Context& context, const Parameter& parameter, std::vector<Tensor>& state,
                const StepArguments& arguments) const override {
    if (small(parameter)) return lion_->step_one(context, parameter, state, arguments);
    OpTimer timer(context, "lion 8 bit", 0, static_cast<double>(parameter.numel()) * 14);
    lion_8bit_step(context.kernel, {.weight = arguments.weight,
                                    .grad = parameter.gradient(),
                                    .codes = codes_of(state[0]),
                                    .absmax = state[1].view().row<float>(0),
                                    .lr = arguments.learning_rate,
                                    .beta1 = options_.lion.beta1,
                                    .beta2 = options_.lion.beta2,
                                    .weight_decay = parameter.decay ? options_.lion.weight_decay : 0.0,
                                    .grad_scale = arguments.grad_scale});
  }

 private:
  bool small(const Parameter& parameter) const { return parameter.numel() < options_.min_8bit_size; }

  Lion8bitOptions options_;
  std::unique_ptr<Optimizer> lion_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lion_8bit(const Lion8bitOptions& options) {
  return std::make_unique<Lion8bit>(options);
}

}  // namespace lode
