#include "train/planned_run.h"

#include <optional>

#include "optim/backward_update.h"
#include "train/optimizer_setup.h"
#include "train/step.h"

namespace lode {

EngineOptions engine_options(const Recipe& recipe) {
  return {.threads = static_cast<int>(recipe.num_threads),
          .bf16 = recipe.pure_bf16 ? std::optional(true) : recipe.bf16,
          .pure_bf16 = recipe.pure_bf16,
          .fp16 = recipe.fp16,
          .seed = static_cast<std::uint64_t>(recipe.seed)};
}

PlannedRun::PlannedRun(FileSystem& files, const Recipe& recipe, const ModelParts& parts,
                       const std::string& model_path)
    : recipe_(recipe),
      engine_(engine_options(recipe)),
      decoder_(engine_.context(), parts.config.spec, parts.config.names,
               weight_policy(files, recipe, model_path, parts, engine_.dtype())) {
  engine_.context().training = true;
  if (recipe.neftune_noise_alpha)
    decoder_.set_embedding_noise(static_cast<float>(*recipe.neftune_noise_alpha));
  updater_ = make_updater(engine_.context(), recipe, decoder_.parameters(),
                          optimizer_options(recipe, decoder_.spec().head_dim));
  decoder_.parameters().allocate_gradients(recipe.optim_in_backward);
  activations_ = choose_activations(files, recipe, decoder_, engine_);
  decoder_.set_activation_policy(activations_.policy);
  decoder_.set_metadata_cache(recipe.metadata_cache);
  capture_ = choose_graph(engine_.facts(), recipe, [](const std::string&) {});
  engine_.context().capture = capture_.get();
}

void PlannedRun::step(const Step& step) {
  constexpr double kLearningRate = 1e-6;
  Context& context = engine_.context();
  std::optional<BackwardUpdate> fused;
  if (recipe_.optim_in_backward)
    fused.emplace(*updater_, decoder_.parameters(), kLearningRate, ParameterUpdater::BeforeUpdate{});
  compute_gradients(context, decoder_, step, fused ? &*fused : nullptr,
                    recipe_.fp16 ? std::optional(1.0) : std::nullopt);
  if (!fused) updater_->step(context, kLearningRate, 1, {});
}

}  // namespace lode
