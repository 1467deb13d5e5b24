// AdamW with moments in 8 bits; the formula is in kernels/optimizer.h. State as in bitsandbytes: state1 and
// state2 are the codes (bytes, four to an i32 element), absmax1 and absmax2 one f32 a block.
#include <cmath>
#include <cstring>

#include "autograd/profile.h"
#include "kernels/optimizer.h"
#include "optim/moments_8bit.h"
#include "optim/optimizers.h"
#include "optim/state.h"

namespace lode {
namespace {

class AdamW8bit : public Optimizer {
 public:
  explicit AdamW8bit(const AdamW8bitOptions& options)
      : options_(options), adamw_(make_adamw(options.adamw)) {}

  std::vector<std::string> state_names(const Parameter& parameter) const override {
    return small(parameter) ? adamw_->state_names(parameter) : moments_8bit_names();
  }

  std::vector<Tensor> init_one(Context& context, const Parameter& parameter) const override {
    return small(parameter) ? adamw_->init_one(context, parameter)
                            : make_moments_8bit(context, parameter.numel());
  }

  void step_one(Context& context, const Parameter& parameter, std::vector<Tensor>& state,
                const StepArguments& arguments) const override {
    if (small(parameter)) return adamw_->step_one(context, parameter, state, arguments);
    OpTimer timer(context, "adamw 8 bit", 0, static_cast<double>(parameter.numel()) * 16);
    AdamW8bitStep step = moments_8bit_step(options_.adamw, state, arguments);
    step.weight = arguments.weight;
    step.grad = parameter.gradient();
    if (!parameter.decay) step.weight_decay = 0;
    adamw_8bit_step(context.kernel, step);
  }

 private:
  bool small(const Parameter& parameter) const { return parameter.numel() < options_.min_8bit_size; }

  AdamW8bitOptions options_;
  std::unique_ptr<Optimizer> adamw_;
};

}  // namespace

std::vector<std::string> moments_8bit_names() {
  return {"state1", "absmax1", "state2", "absmax2"};
}

std::uint8_t* codes_of(Tensor& codes) {
  return static_cast<std::uint8_t*>(codes.view().data);
}

std::vector<Tensor> make_moment_8bit(Context& context, std::int64_t numel, bool is_signed) {
  std::vector<Tensor> state;
  state.emplace_back(context.memory, MemoryTag::optimizer, DType::i32, 1, (numel + 3) / 4);
  std::memset(state.back().view().data, is_signed ? 127 : 0, state.back().bytes());
  state.push_back(std::move(zeros(context, {{1, (numel + kBlock8bit - 1) / kBlock8bit}})[0]));
  return state;
}

std::vector<Tensor> make_moments_8bit(Context& context, std::int64_t numel) {
  std::vector<Tensor> state = make_moment_8bit(context, numel, true);
  for (Tensor& tensor : make_moment_8bit(context, numel, false)) state.push_back(std::move(tensor));
  return state;
}

AdamW8bitStep moments_8bit_step(const AdamWOptions& options, std::vector<Tensor>& state,
                                const StepArguments& arguments) {
  const auto time = static_cast<double>(arguments.time);
  return {.codes1 = codes_of(state[0]),
          .codes2 = codes_of(state[2]),
          .absmax1 = state[1].view().row<float>(0),
          .absmax2 = state[3].view().row<float>(0),
          .lr = arguments.learning_rate,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .weight_decay = options.weight_decay,
          .bias_correction1 = 1 - std::pow(options.beta1, time),
          .bias_correction2 = 1 - std::pow(options.beta2, time),
          .grad_scale = arguments.grad_scale};
}

std::unique_ptr<Optimizer> make_adamw_8bit(const AdamW8bitOptions& options) {
  return std::make_unique<AdamW8bit>(options);
}

}  // namespace lode
