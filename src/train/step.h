// One optimizer step: forward and backward of all micro-batches, the gradient's norm, the update; and the
// search for the first bad tensor when loss or gradient is not finite.
#pragma once

#include <functional>
#include <optional>

#include "data/loader.h"
#include "nn/decoder.h"
#include "optim/backward_update.h"

namespace lode {

struct StepResult {
  double loss_sum = 0;  // over the target tokens, nats
  std::int64_t num_targets = 0;
  std::int64_t num_tokens = 0;  // without padding
  double grad_norm = 0;         // before clipping
  double flops = 0;
  double recomputed_flops = 0;  // not among them
  std::int64_t segments_built = 0, segments_used = 0;
  bool finite = true;
  bool overflow = false;  // with a gradient scale: a scaled gradient is beyond f16's range
  bool updated = false;   // by the update given
};

// Gradients of a whole step are left in the parameters' sinks, divided by the number of target tokens of the
// step. context.tape must be null; a tape lives for each micro-batch. With an update, which the step must
// have a single micro-batch for, parameters change during the backward and no gradients are left. With a
// gradient scale (of fp16) the gradients left are times it; the norm is not.
StepResult compute_gradients(Context& context, Decoder& decoder, const Step& step,
                             BackwardUpdate* update = nullptr, std::optional<double> gradient_scale = {});

// Runs the step again, looking at every op's output and gradient: names the first tensor that is not finite,
// with layer, op and sample. For messages.
std::string find_bad_tensor(Context& context, Decoder& decoder, const Step& step);

}  // namespace lode
