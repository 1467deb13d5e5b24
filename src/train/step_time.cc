#include "train/step_time.h"

#include <chrono>
#include <map>

#include "core/rehearsal.h"
#include "train/planned_run.h"

namespace lode {
namespace {

constexpr std::int64_t kVocabulary = 8192;
constexpr int kTimedSteps = 2;

// The step with ids of a smaller vocabulary.
Step with_vocabulary(const Step& step, std::int64_t vocabulary) {
  const auto within = [vocabulary](std::vector<std::int32_t> ids) {
    for (std::int32_t& id : ids)
      if (id >= 0) id = static_cast<std::int32_t>(id % vocabulary);
    return ids;
  };
  Step out;
  out.num_targets = step.num_targets;
  for (const Batch& batch : step.micro_batches)
    out.micro_batches.emplace_back(within(batch.tokens()), within(batch.labels()), batch.loss_weight(),
                                   batch.segments());
  return out;
}

// FLOPs, bytes, calls and (unless rehearsed) seconds by op of one step.
Profile profile_of(FileSystem& files, const Recipe& recipe, const ModelParts& parts,
                   const std::string& model_path, const Step& step, int steps) {
  PlannedRun run(files, recipe, parts, model_path);
  if (!Rehearsal::active()) run.initialise();
  Profile profile;
  for (int i = 0; i <= steps; ++i) {
    // The first one makes kernels and touches memory for the first time.
    run.engine().context().profile = i == 0 ? nullptr : &profile;
    run.step(step);
  }
  return profile;
}

double seconds_of(const OpCost& wanted, const OpCost& measured) {
  if (measured.flops > 0) return measured.seconds * wanted.flops / measured.flops;
  if (measured.bytes > 0) return measured.seconds * wanted.bytes / measured.bytes;
  return measured.seconds * static_cast<double>(wanted.calls) / static_cast<double>(measured.calls);
}

}  // namespace

StepTime predict_step_time(FileSystem& files, const Recipe& recipe, const ModelParts& parts,
                           const std::string& model_path, const Step& step) {
  const auto begin = std::chrono::steady_clock::now();
  ModelParts small = parts;
  DecoderSpec& spec = small.config.spec;
  spec.layers = 1;
  if (spec.layer_specs.size() > 1) spec.layer_specs.resize(1);
  spec.vocab_size = std::min(spec.vocab_size, kVocabulary);
  Recipe measurable = recipe;
  if (recipe.finetuning_type == Recipe::Tuning::freeze) measurable.finetuning_type = Recipe::Tuning::full;
  // Files are read ahead while others compute.
  if (recipe.activation_policy == Recipe::Activations::offload)
    measurable.activation_policy = Recipe::Activations::recompute;
  measurable.optim_offload_dir.clear();
  const Profile measured =
      profile_of(files, measurable, small, model_path, with_vocabulary(step, spec.vocab_size), kTimedSteps);
  Profile whole;
  {
    const Rehearsal rehearsal;
    whole = profile_of(files, recipe, parts, model_path, step, 1);
  }
  StepTime time;
  for (const auto& [op, cost] : whole.ops()) {
    const auto found = measured.ops().find(op);
    if (found != measured.ops().end()) time.seconds += seconds_of(cost, found->second);
  }
  for (const Batch& batch : step.micro_batches) {
    for (const Segment& segment : batch.segments().list())
      time.tokens += segment.padding ? 0.0 : static_cast<double>(segment.length);
  }
  time.measured_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return time;
}

}  // namespace lode
