// What a training run computes with, made from its recipe but without weights: for plans and measurements.
#pragma once

#include <memory>

#include "data/loader.h"
#include "optim/optimizer.h"
#include "train/activation_setup.h"
#include "train/model_setup.h"

namespace lode {

EngineOptions engine_options(const Recipe& recipe);

class PlannedRun {
 public:
  // Weights have no values until initialise(). Throws as making the model and the optimizer does.
  PlannedRun(FileSystem& files, const Recipe& recipe, const ModelParts& parts, const std::string& model_path);

  void initialise() { decoder_.initialise(engine_.context(), 1); }
  // Forward, backward and update as the run would.
  void step(const Step& step);

  Engine& engine() { return engine_; }

 private:
  const Recipe& recipe_;
  Engine engine_;
  Decoder decoder_;
  std::unique_ptr<ParameterUpdater> updater_;
  Activations activations_;
  std::unique_ptr<GraphCapture> capture_;
};

}  // namespace lode
