// Evaluations, checkpoints and the end of a run.
#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "infer/generate.h"
#include "models/peft.h"
#include "models/saved_config.h"
#include "models/weights.h"
#include "observe/report.h"
#include "observe/trainer_state.h"
#include "train/evaluate.h"
#include "train/trainer.h"

namespace lode {
namespace {

double metric_value(const EvalResult& result, std::string_view metric) {
  if (metric == "loss") return result.loss;
  if (metric == "perplexity") return result.perplexity;
  if (metric == "bits_per_byte") return result.bits_per_byte;
  return result.token_accuracy;
}

// "loss", or "SET_loss" for one of several sets; the first set without a name.
bool is_metric_of(const std::string& wanted, const std::string& set, bool first, std::string& metric) {
  if (wanted.starts_with(set + "_")) {
    metric = wanted.substr(set.size() + 1);
    return true;
  }
  metric = wanted;
  return first &&
         (wanted == "loss" || wanted == "perplexity" || wanted == "bits_per_byte" || wanted == "accuracy");
}

}  // namespace

bool Trainer::evaluate_sets() {
  const auto begin = std::chrono::steady_clock::now();
  bool improved = false;
  for (std::size_t i = 0; i < data_.eval.size(); ++i) {
    const EvalRows& set = data_.eval[i];
    const EvalResult result = evaluate(engine_.context(), *decoder_, set.rows,
                                       recipe_.per_device_eval_batch_size * recipe_.cutoff_len);
    EvalMetrics m;
    m.step = state_.step;
    m.epoch = state_.epoch;
    m.set = set.name;
    m.loss = result.loss;
    m.perplexity = result.perplexity;
    m.bits_per_byte = result.bits_per_byte;
    m.token_accuracy = result.token_accuracy;
    m.tokens = result.tokens;
    m.samples = result.samples;
    m.seconds = result.seconds;
    metrics_->write(to_json(m));
    if (events_) events_->write(m);
    progress_->clear();
    log_.info(
        "step {}: {}: loss {:.4f}, perplexity {:.3f}, bits per byte {:.4f}, accuracy {:.4f} ({} tokens, "
        "{:.1f} s)",
        m.step, m.set, m.loss, m.perplexity, m.bits_per_byte, m.token_accuracy, m.tokens, m.seconds);
    results_[set.name] = Json::object({{"loss", result.loss}, {"bits_per_byte", result.bits_per_byte}});
    std::string metric;
    if (!is_metric_of(recipe_.metric_for_best_model, set.name, i == 0, metric)) continue;
    const double value = metric_value(result, metric);
    const bool better = std::isfinite(value) &&
                        (!state_.best_metric || (recipe_.greater_is_better ? value > *state_.best_metric
                                                                           : value < *state_.best_metric));
    if (better) {
      state_.best_metric = value;
      state_.best_step = state_.step;
      state_.evaluations_without_improvement = 0;
      improved = true;
    } else {
      ++state_.evaluations_without_improvement;
    }
  }
  state_.last_eval_step = state_.step;
  write_samples();
  progress_->exclude(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  if (recipe_.early_stopping_patience > 0 &&
      state_.evaluations_without_improvement >= recipe_.early_stopping_patience && !stopped_early_) {
    stopped_early_ = true;
    log_.info("step {}: {} evaluations without a better {}: stopping early", state_.step,
              state_.evaluations_without_improvement, recipe_.metric_for_best_model);
  }
  return improved;
}

void Trainer::write_samples() {
  Context& context = engine_.context();
  const bool was_training = std::exchange(context.training, false);
  for (const std::string& prompt : recipe_.generate_prompts) {
    GenerateOptions options;
    options.sampling = {.temperature = 0.8, .top_p = 0.95, .seed = state_.seed};
    options.max_new_tokens = recipe_.generate_max_new_tokens;
    const Generated generated = generate(context, *decoder_, parts_->tokenizer, prompt, options);
    const SampleText sample{state_.step, prompt, generated.text};
    metrics_->write(to_json(sample));
    if (events_) events_->write(sample);
    log_.info("step {}: sample: {}{}", state_.step, prompt, generated.text);
  }
  context.training = was_training;
  context.kernel.workspace->release();
}

// The optimizer state of a parameter, in memory or in a file.
void Trainer::add_state(std::size_t i, std::vector<SavedTensor>& tensors) {
  const Parameter& parameter = decoder_->parameters().all()[i];
  const auto names = updater_->state_names(i);
  const auto add = [&](std::size_t k, ConstView view, std::function<Tensor()> read) {
    tensors.push_back({{format("{}.{}", parameter.name, names[k]), view.dtype, {view.rows, view.cols}},
                       view,
                       i,
                       std::move(read)});
  };
  StateStore* const store = updater_->store();
  if (store == nullptr) {
    for (std::size_t k = 0; k < updater_->states()[i].size(); ++k)
      add(k, updater_->states()[i][k].view(), {});
    return;
  }
  if (!parameter.trainable()) return;
  if (!store->has(i)) updater_->keep_state(i, updater_->load_state(engine_.context(), i));
  for (std::size_t k = 0; k < names.size(); ++k) {
    const StateStore::Shape shape = store->shape(i, k);
    add(k, {nullptr, shape.dtype, shape.rows, shape.cols, shape.cols},
        [store, i, k, &memory = engine_.memory()] { return store->read(memory, i, k); });
  }
}

CheckpointContents Trainer::checkpoint_contents() {
  CheckpointContents contents;
  contents.output_dir = recipe_.output_dir;
  contents.step = state_.step;
  const auto& parameters = decoder_->parameters().all();
  contents.adapter = decoder_->parameters().policy().adapter.has_value();
  if (contents.adapter) {
    for (const PeftTensor& tensor : peft_tensors(decoder_->parameters())) {
      contents.model.push_back({tensor.spec, parameters[tensor.parameter].values(), tensor.parameter});
    }
    std::ranges::sort(contents.model, {}, [](const SavedTensor& tensor) {
      return std::pair(tensor.parameter, tensor.spec.name);
    });
  } else {
    auto specs = file_tensors(decoder_->parameters(), DType::f32);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (recipe_.pure_bf16) specs[i].dtype = parameters[i].values().dtype;
      contents.model.push_back({specs[i], parameters[i].values(), i});
    }
  }
  if (!recipe_.save_only_model) {
    make_updater();
    for (std::size_t i = 0; i < parameters.size(); ++i) add_state(i, contents.optimizer);
    if (updater_->store() != nullptr) updater_->store()->flush();
  }
  TrainerState state;
  state.step = state_.step;
  state.max_steps = total_steps_;
  state.epoch = state_.epoch;
  state.num_train_epochs = recipe_.num_train_epochs;
  state.logging_steps = recipe_.logging_steps;
  state.eval_steps = recipe_.eval_steps;
  state.save_steps = recipe_.save_steps;
  state.train_batch_size = recipe_.per_device_train_batch_size;
  state.tokens_seen = state_.tokens;
  state.total_flops = state_.flops;
  state.best_metric = state_.best_metric;
  state.best_step = state_.best_step;
  // Other runs may not have saved, or may have removed it.
  if (state_.best_metric && recipe_.load_best_model_at_end)
    state.best_checkpoint = checkpoint_path(recipe_.output_dir, state_.best_step);
  state.stopping = finished();
  state.metrics = read_metrics(files_, folder_->metrics_path()).records;
  if (!data_.eval.empty()) state.main_eval_set = data_.eval.front().name;
  contents.files = {{"trainer_state.json", make_trainer_state(state)}, {"recipe.yaml", recipe_.to_yaml()}};
  if (contents.adapter) {
    contents.files.emplace_back(kAdapterConfigFile,
                                peft_config(decoder_->parameters(), recipe_.model_name_or_path));
  } else {
    contents.files.emplace_back("config.json", saved_config(parts_->config, parts_->tokenizer,
                                                            recipe_.pure_bf16 ? DType::bf16 : DType::f32));
  }
  contents.files.emplace_back("generation_config.json", saved_generation_config(parts_->tokenizer));
  for (auto& file : parts_->tokenizer.files(parts_->config.spec.max_positions))
    contents.files.push_back(std::move(file));
  contents.state = state_.to_json();
  return contents;
}

void Trainer::save() {
  if (saved_step_ == state_.step) return;
  finish_save(true);
  const auto begin = std::chrono::steady_clock::now();
  writer_->begin(checkpoint_contents());
  saved_step_ = state_.step;
  progress_->exclude(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}

void Trainer::finish_save(bool wait) {
  const auto saved = wait ? writer_->finish() : writer_->poll();
  if (!saved) return;
  progress_->clear();
  log_.info("step {}: saved {} ({}, {:.1f} s in the background, updates waited {:.3f} s)", saved->step,
            saved->path, format_bytes(saved->bytes), saved->seconds, saved->stall_seconds);
  engine_.facts().count("checkpoints saved");
  const std::int64_t keep = recipe_.load_best_model_at_end && state_.best_metric ? state_.best_step : -1;
  for (const FoundCheckpoint& gone :
       prune_checkpoints(files_, recipe_.output_dir, static_cast<int>(recipe_.save_total_limit), keep)) {
    log_.info("removed {} (save_total_limit {})", gone.path, recipe_.save_total_limit);
  }
}

std::string Trainer::result() const {
  const bool best = recipe_.load_best_model_at_end && state_.best_metric;
  return checkpoint_path(recipe_.output_dir, best ? state_.best_step : state_.step);
}

TrainOutcome Trainer::finish() {
  save();
  finish_save(true);
  TrainOutcome outcome{result(), state_.step};
  if (recipe_.load_best_model_at_end && state_.best_metric) {
    log_.info("best {}: {:.4f} at step {}: {}", recipe_.metric_for_best_model, *state_.best_metric,
              state_.best_step, outcome.result);
  }
  results_["model"] = outcome.result;
  return outcome;
}

void Trainer::write_end(int exit_status, const std::string& reason) {
  if (!progress_) return;  // it had not begun
  progress_->clear();
  RunEnd end;
  end.exit_status = exit_status;
  end.reason = reason;
  end.seconds = train_seconds_;
  end.step = state_.step;
  end.tokens = process_tokens_;
  end.flops = process_flops_;
  end.recomputed_flops = process_recomputed_flops_;
  if (capture_) count_capture(engine_.facts(), capture_->counts());
  if (activations_.offload) {
    const OffloadCounts& counts = activations_.offload->counts();
    count_offload(engine_.facts(), counts);
    const std::string advice = advice_on_slow_offload(recipe_, counts, train_seconds_);
    if (!advice.empty()) log_.warning("{}", advice);
  }
  end.samples = process_samples_;
  end.lost_metrics = metrics_->lost();
  end.results = results_;
  if (updater_ && updater_->store() != nullptr) {
    const StateStoreCounts& counts = updater_->store()->counts();
    engine_.facts().count("optimizer states read from the file", counts.read);
    engine_.facts().count("updates that waited for the file", counts.stalls);
    engine_.facts().count("microseconds that updates waited for the file",
                          static_cast<std::int64_t>(counts.time_stalled * 1e6));
  }
  const MemoryUse memory = engine_.memory().use();
  try {
    if (events_) events_->flush();
    record_->write_end(engine_.facts(), memory, end);
    write_report(files_, recipe_.output_dir, recipe_.logging_dir);
  } catch (const std::exception& error) {
    // The run's own outcome matters more than its report.
    log_.warning("the report was not written: {}", error.what());
  }
  log_.info("{}", summary(info_, end, engine_.facts(), memory));
}

}  // namespace lode
