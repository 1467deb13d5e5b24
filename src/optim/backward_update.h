// The update fused into backward: a parameter changes as soon as its gradient is final, and the gradient's
// memory is free again. Gradients must be on demand. Bit-identical to the update after backward, as no
// parameter's step looks at another's; the norm of all gradients is known only at the end, so there is no
// clipping.
#pragma once

#include <optional>
#include <vector>

#include "optim/optimizer.h"

namespace lode {

// One step: from construction, through a backward that it listens to, to finish().
class BackwardUpdate : public GradientListener {
 public:
  BackwardUpdate(ParameterUpdater& updater, ParameterList& parameters, double learning_rate,
                 ParameterUpdater::BeforeUpdate before_update);

  // No parameter changes from now on: gradients are only freed.
  void stop() { stopped_ = true; }
  void gradient_final(Context& context, GradientSink& sink) override;

  struct Result {
    double norm = 0;       // of all gradients; not finite when one was not
    bool updated = false;  // parameters have changed: all, or those that came before a gradient that is not
                           // finite
  };
  // After backward: the parameters that it did not reach (their gradient is 0), and the end of the step.
  Result finish(Context& context);

 private:
  void update(Context& context, std::size_t storage);

  ParameterUpdater& updater_;
  ParameterList& parameters_;
  double learning_rate_;
  ParameterUpdater::BeforeUpdate before_update_;
  std::optional<StepArguments> arguments_;  // once something was updated
  std::vector<double> squares_;             // of each storage
  std::vector<bool> done_;
  bool stopped_ = false;
};

}  // namespace lode
