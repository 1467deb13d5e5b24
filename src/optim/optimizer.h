// Optimizers. One file each: which state a parameter has, and one parameter's step. Everything else
// (clipping, order, checkpoints) wraps any of them here.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/optimizer.h"
#include "nn/parameter.h"
#include "optim/state_store.h"

namespace lode {

struct StepArguments {
  double learning_rate;
  std::int64_t time;           // steps including this one, from 1
  float grad_scale;            // multiplies gradients: clipping
  UpdatedWeights weight = {};  // the parameter's, set for each
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Names of a parameter's state tensors, as in the reference's state dicts ("exp_avg").
  virtual std::vector<std::string> state_names(const Parameter& parameter) const = 0;
  // The state tensors of one parameter, in that order, zero at the start unless it says otherwise.
  virtual std::vector<Tensor> init_one(Context& context, const Parameter& parameter) const = 0;
  // One update in place of arguments.weight, by a pass that also refreshes the bf16 copy when there is one.
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

// sqrt of the sum of squares of all gradients, in f64 over fixed blocks: those of the storages, in order.
double gradient_norm(Context& context, const ParameterList& parameters);
// Of one storage with a gradient, without the parts that are not trained.
double gradient_squares(Context& context, const ParameterList& parameters, ParameterStorage& storage);
// torch.nn.utils.clip_grad_norm_'s factor: min(1, max_norm / (norm + 1e-6)); 1 when max_norm <= 0.
float clip_factor(double norm, double max_norm);

// How new values of bf16 weights without f32 masters are rounded.
enum class WeightRounding {
  stochastic,  // at random, keyed by (seed, step, parameter, element)
  kahan,       // to nearest; what is lost goes to the state "compensation", 2 bytes a parameter
};

// An optimizer applied to a list of parameters, with the state it needs.
class ParameterUpdater {
 public:
  // store: where the state lives; null: in memory. Throws Error(usage) for an optimizer that changes which
  // parameters have state.
  ParameterUpdater(Context& context, ParameterList& parameters, std::unique_ptr<Optimizer> optimizer,
                   WeightRounding rounding = WeightRounding::stochastic,
                   std::unique_ptr<StateStore> store = nullptr);

  // Updates all parameters in their order. before_update(i) is called before parameter i changes: a save may
  // still be reading it.
  using BeforeUpdate = std::function<void(std::size_t)>;
  void step(Context& context, double learning_rate, float grad_scale, const BeforeUpdate& before_update);

  // The same in parts: begin, the parameters that have gradients in any order, end.
  StepArguments begin(double learning_rate, float grad_scale) { return {learning_rate, ++time_, grad_scale}; }
  void update(Context& context, std::size_t i, const StepArguments& arguments,
              const BeforeUpdate& before_update);
  void end(Context& context);

  std::int64_t time() const { return time_; }
  // Goes on behind step `time`; before the states of a checkpoint are read.
  void set_time(Context& context, std::int64_t time);
  const Optimizer& optimizer() const { return *optimizer_; }
  // states()[i]: of parameters.all()[i]; empty while they are in a store.
  std::vector<std::vector<Tensor>>& states() { return states_; }
  StateStore* store() { return store_.get(); }
  // The tensors of a parameter, wherever they are, for reading them from a file or looking at their shapes.
  std::vector<Tensor> load_state(Context& context, std::size_t i);
  void keep_state(std::size_t i, std::vector<Tensor> state);
  std::vector<std::string> state_names(std::size_t i) const;
  std::size_t state_bytes() const;

 private:
  bool compensated(const Parameter& parameter) const;
  std::vector<Tensor> initial_state(Context& context, std::size_t i) const;
  void read_ahead(Context& context, std::size_t i);
  void prepare(Context& context);

  ParameterList& parameters_;
  std::unique_ptr<Optimizer> optimizer_;
  WeightRounding rounding_;
  std::unique_ptr<StateStore> store_;
  std::size_t stored_bytes_ = 0;
  std::vector<std::size_t> order_, last_order_;  // of the updates of this step and the one before
  std::vector<std::vector<Tensor>> states_;
  std::int64_t time_ = 0;
};

}  // namespace lode
