// How long a step will take, from the rates of its ops on this machine: they are measured on one layer of the
// model with a part of its vocabulary, then applied to the FLOPs and bytes of the whole.
#pragma once

#include "train/memory_plan.h"

namespace lode {

struct StepTime {
  double seconds = 0;           // of the step that was given
  double tokens = 0;            // in it, without padding
  double measured_seconds = 0;  // what measuring took
};

// step: a typical one of the run. Uses memory for one layer and a vocabulary of 8,192 (with gradients and
// optimizer state where they are trained). Random weights: time does not depend on values.
StepTime predict_step_time(FileSystem& files, const Recipe& recipe, const ModelParts& parts,
                           const std::string& model_path, const Step& step);

}  // namespace lode
