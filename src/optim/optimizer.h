// Optimizers. One file each: which state a parameter has, and one parameter's step. Everything else
// (clipping, order, checkpoints) wraps any of them here.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nn/parameter.h"

namespace lode {

struct StepArguments {
  double learning_rate;
  std::int64_t time;  // steps including this one, from 1
  float grad_scale;   // multiplies gradients: clipping
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Names of a parameter's state tensors, as in the reference's state dicts ("exp_avg").
  virtual std::vector<std::string> state_names(const Parameter& parameter) const = 0;
  // The state tensors of one parameter, in that order, zero at the start unless it says otherwise.
  virtual std::vector<Tensor> init_one(Context& context, const Parameter& parameter) const = 0;
  // One update in place; also refreshes the parameter's bf16 copy when it has one.
  virtual void step_one(Context& context, const Parameter& parameter, std::vector<Tensor>& state,
                        const StepArguments& arguments) const = 0;
  // Called before the backward of step `time`, with the states as the step before left them: for optimizers
  // that train different parameters at different times.
  virtual void prepare(Context& context, ParameterList& parameters, std::vector<std::vector<Tensor>>& states,
                       std::int64_t time) const;
  // False: init_one is not called at the start; prepare makes the states.
  virtual bool has_state_at_start() const { return true; }
};

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
};
std::unique_ptr<Optimizer> make_adamw(const AdamWOptions& options);

// sqrt of the sum of squares of all gradients, in f64 over fixed blocks.
double gradient_norm(Context& context, const ParameterList& parameters);
// torch.nn.utils.clip_grad_norm_'s factor: min(1, max_norm / (norm + 1e-6)); 1 when max_norm <= 0.
float clip_factor(double norm, double max_norm);

// An optimizer applied to a list of parameters, with the state it needs.
class ParameterUpdater {
 public:
  ParameterUpdater(Context& context, ParameterList& parameters, std::unique_ptr<Optimizer> optimizer);

  // Updates all parameters in their order. before_update(i) is called before parameter i changes: a save may
  // still be reading it.
  void step(Context& context, double learning_rate, float grad_scale,
            const std::function<void(std::size_t)>& before_update);

  std::int64_t time() const { return time_; }
  // Goes on behind step `time`; before the states of a checkpoint are read.
  void set_time(Context& context, std::int64_t time);
  const Optimizer& optimizer() const { return *optimizer_; }
  // states()[i]: of parameters.all()[i].
  std::vector<std::vector<Tensor>>& states() { return states_; }
  std::vector<std::string> state_names(std::size_t i) const {
    return optimizer_->state_names(parameters_.all()[i]);
  }
  std::size_t state_bytes() const;

 private:
  ParameterList& parameters_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<std::vector<Tensor>> states_;
  std::int64_t time_ = 0;
};

}  // namespace lode
