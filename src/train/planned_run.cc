#include "train/planned_run.h"

#include <algorithm>
#include <optional>

#include "core/fail.h"
#include "infer/generate.h"
#include "io/weights.h"
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

namespace {

WeightPolicy planned_policy(FileSystem& files, const Recipe& recipe, const ModelParts& parts,
                            const std::string& model_path, Engine& engine) {
  WeightPolicy policy = weight_policy(files, recipe, model_path, parts, engine.dtype());
  choose_frozen_compute(engine.facts(), recipe.frozen_compute, engine.dtype(), policy);
  return policy;
}

}  // namespace

PlannedLoad plan_load(FileSystem& files, const Recipe& recipe, const ModelParts& parts,
                      const std::string& model_path) {
  Engine engine(engine_options(recipe));
  Decoder decoder(engine.context(), parts.config.spec, parts.config.names,
                  planned_policy(files, recipe, parts, model_path, engine));
  PlannedLoad out;
  if (!recipe.train_from_scratch)
    out.mapped = static_cast<std::size_t>(kLoadedAtOnce) * static_cast<std::size_t>(engine.threads());
  try {
    load_values(files, parts.config, recipe.train_from_scratch ? "" : model_path, recipe.adapter_name_or_path,
                decoder, engine.context());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
    out.problem = error.what();
    out.problem.resize(std::min(out.problem.find('\n'), out.problem.size()));  // lists can be long
  }
  out.use = engine.memory().use();
  return out;
}

PlannedRun::PlannedRun(FileSystem& files, const Recipe& recipe, const ModelParts& parts,
                       const std::string& model_path)
    : recipe_(recipe),
      engine_(engine_options(recipe)),
      decoder_(engine_.context(), parts.config.spec, parts.config.names,
               planned_policy(files, recipe, parts, model_path, engine_)) {
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

void PlannedRun::between_steps(const std::function<void()>& work) {
  Context& context = engine_.context();
  const bool was_training = std::exchange(context.training, false);
  context.kernel.workspace->release();
  work();
  context.training = was_training;
}

void PlannedRun::evaluate(const Batch& batch) {
  between_steps([&] { decoder_.loss(engine_.context(), batch, 1.0f); });
}

void PlannedRun::generate(std::int64_t prompt_tokens, std::int64_t max_new_tokens) {
  between_steps([&] { rehearse_generation(engine_.context(), decoder_, prompt_tokens, max_new_tokens); });
}

std::uint64_t PlannedRun::offloaded_bytes() const {
  if (!activations_.offload) return 0;
  const OffloadCounts& counts = activations_.offload->counts();
  return counts.bytes_written + counts.bytes_read;
}

std::size_t PlannedRun::largest_stored_state() const {
  const StateStore* store = updater_->store();
  std::size_t largest = 0;
  for (std::size_t i = 0; store != nullptr && i < decoder_.parameters().all().size(); ++i) {
    if (!store->has(i)) continue;
    for (std::size_t k = 0; k < updater_->state_names(i).size(); ++k) {
      const StateStore::Shape shape = store->shape(i, k);
      largest = std::max(largest, static_cast<std::size_t>(shape.rows * shape.cols) * size_of(shape.dtype));
    }
  }
  return largest;
}

}  // namespace lode
