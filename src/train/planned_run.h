// What a training run computes with, made from its recipe but without weights: for plans and measurements.
#pragma once

#include <functional>
#include <memory>

#include "data/loader.h"
#include "optim/optimizer.h"
#include "train/activation_setup.h"
#include "train/model_setup.h"

namespace lode {

EngineOptions engine_options(const Recipe& recipe);

// What reading a model takes, before gradients and optimizer are there.
struct PlannedLoad {
  MemoryUse use;
  std::size_t mapped = 0;  // of the files, at once, bytes; not among `use`
  std::string problem;     // why the weights could not be looked at; `use` is then the room for them alone
};

// To be called in a rehearsal. Headers of the files are read, no weights. Throws as making the model does.
PlannedLoad plan_load(FileSystem& files, const Recipe& recipe, const ModelParts& parts,
                      const std::string& model_path);

class PlannedRun {
 public:
  // Weights have no values until initialise(). Throws as making the model and the optimizer does.
  PlannedRun(FileSystem& files, const Recipe& recipe, const ModelParts& parts, const std::string& model_path);

  void initialise() { decoder_.initialise(engine_.context(), 1); }
  // Forward, backward and update as the run would.
  void step(const Step& step);
  // As the run does between steps, without gradients.
  void evaluate(const Batch& batch);
  // To be called in a rehearsal: what is generated between steps. Throws as rehearse_generation.
  void generate(std::int64_t prompt_tokens, std::int64_t max_new_tokens);
  // Bytes of the largest tensor of the optimizer's state that is in a file after a step, where a checkpoint
  // has to read it; 0: state is in memory.
  std::size_t largest_stored_state() const;
  // Bytes of activations written to a file and read back, in all steps so far.
  std::uint64_t offloaded_bytes() const;

  Engine& engine() { return engine_; }

 private:
  // Without gradients and what steps have left in the workspace.
  void between_steps(const std::function<void()>& work);

  const Recipe& recipe_;
  Engine engine_;
  Decoder decoder_;
  std::unique_ptr<ParameterUpdater> updater_;
  Activations activations_;
  std::unique_ptr<GraphCapture> capture_;
};

}  // namespace lode
