#include "train/step_time.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

#include "core/rehearsal.h"
#include "train/planned_run.h"

namespace lode {
namespace {

constexpr std::int64_t kVocabulary = 8192;
constexpr std::size_t kTimedSteps = 3;

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

// FLOPs, bytes, calls and (unless rehearsed) seconds by op, of each step.
std::vector<Profile> profile_steps(FileSystem& files, const Recipe& recipe, const ModelParts& parts,
                                   const std::string& model_path, const Step& step, std::size_t steps) {
  PlannedRun run(files, recipe, parts, model_path);
  if (!Rehearsal::active()) run.initialise();
  // The first one makes kernels and touches memory for the first time.
  run.step(step);
  std::vector<Profile> profiles(steps);
  for (Profile& profile : profiles) {
    run.engine().context().profile = &profile;
    run.step(step);
  }
  return profiles;
}

// Of the op's costs in several steps that of the median time: one of them may have been held up.
std::optional<OpCost> usual_cost(const std::vector<Profile>& steps, const std::string& op) {
  std::vector<OpCost> costs;
  for (const Profile& step : steps) {
    const auto found = step.ops().find(op);
    if (found != step.ops().end()) costs.push_back(found->second);
  }
  if (costs.empty()) return std::nullopt;
  std::ranges::sort(costs, {}, &OpCost::seconds);
  return costs[costs.size() / 2];
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
  const std::vector<Profile> measured = profile_steps(files, measurable, small, model_path,
                                                      with_vocabulary(step, spec.vocab_size), kTimedSteps);
  std::vector<Profile> whole;
  {
    const Rehearsal rehearsal;
    whole = profile_steps(files, recipe, parts, model_path, step, 1);
  }
  StepTime time;
  for (const auto& [op, cost] : whole.front().ops()) {
    if (const auto usual = usual_cost(measured, op)) time.seconds += seconds_of(cost, *usual);
  }
  for (const Batch& batch : step.micro_batches) {
    for (const Segment& segment : batch.segments().list())
      time.tokens += segment.padding ? 0.0 : static_cast<double>(segment.length);
  }
  time.measured_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return time;
}

}  // namespace lode
