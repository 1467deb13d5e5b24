#include "train/trainer.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "data/prefetch.h"
#include "kernels/matmul.h"
#include "observe/report.h"
#include "train/signals.h"

namespace lode {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

bool Trainer::due(Recipe::When when, std::int64_t every) const {
  if (when == Recipe::When::steps) return every > 0 && state_.step % every == 0;
  if (when == Recipe::When::epoch) return state_.step % steps_per_epoch_ == 0;
  return false;
}

bool Trainer::finished() const {
  return state_.step >= total_steps_ ||
         (recipe_.early_stopping_patience > 0 &&
          state_.evaluations_without_improvement >= recipe_.early_stopping_patience);
}

TrainOutcome Trainer::run() {
  if (resumed_ && finished()) {
    log_.info(
        "this run is finished: {} holds step {} of {}. To train on, raise num_train_epochs or max_steps{}.",
        resumed_->path, state_.step, total_steps_,
        state_.step < total_steps_ ? " or early_stopping_patience" : "");
    return {result(), state_.step, true};
  }
  try {
    open_records();
    started_ = Clock::now();
    const StopSignals signals;
    train_steps();
    TrainOutcome outcome = finish();
    write_end(0, "done");
    return outcome;
  } catch (const Error& error) {
    if (progress_) progress_->clear();
    write_end(exit_code(error.kind()), error.what());
    throw;
  } catch (const std::exception& error) {
    write_end(exit_code(ErrorKind::internal), error.what());
    throw;
  }
}

void Trainer::train_steps() {
  PrefetchingLoader steps(
      [this](std::int64_t step) { return data_.stream ? data_.stream->next() : loader_->make_step(step); },
      state_.step, total_steps_);
  while (!finished()) {
    const bool profiled = state_.step + 1 >= recipe_.profile_first && state_.step + 1 <= recipe_.profile_last;
    if (profiled && !profile_) profile_ = std::make_unique<Profile>(true);
    const double waited = steps.counts().time_stalled;
    const auto begin = Clock::now();
    const Step step = steps.next();
    if (profiled) profile_->add_span("data", begin, seconds_since(begin));
    if (window_.steps == 0 && train_seconds_ == 0) {
      engine_.facts().count("milliseconds from command to first step",
                            static_cast<std::int64_t>(seconds_since_start() * 1e3));
    }
    window_.wait += steps.counts().time_stalled - waited;
    train_one(step);
    if (profile_ && (state_.step >= recipe_.profile_last || finished() || StopSignals::requested()))
      write_trace();
    // Takes a second or two: a run that is shorter goes without.
    if (train_seconds_ > next_peak_) measure_peak();
    const bool last = finished();
    if (state_.step % recipe_.logging_steps == 0 || last) log_step();
    bool save_best = false;
    if (!data_.eval.empty() && (due(recipe_.eval_strategy, recipe_.eval_steps) ||
                                (last && recipe_.eval_strategy != Recipe::When::no))) {
      save_best = evaluate_sets() && recipe_.load_best_model_at_end;
    }
    const bool stop = StopSignals::requested();
    if (due(recipe_.save_strategy, recipe_.save_steps) || save_best || (stop && !finished())) save();
    finish_save(false);
    if (stop && !finished()) {
      finish_save(true);
      fail(ErrorKind::preempted,
           "{} received: step {} of {} is saved in {}; run again with resume_from_checkpoint: true",
           StopSignals::name(), state_.step, total_steps_, checkpoint_path(recipe_.output_dir, state_.step));
    }
  }
  const PrefetchCounts counts = steps.counts();
  engine_.facts().count("loader hits", counts.hits);
  engine_.facts().count("loader stalls", counts.stalls);
}

void Trainer::train_one(const Step& step) {
  Context& context = engine_.context();
  const auto begin = Clock::now();
  context.step = state_.step;
  context.training = true;
  context.profile = profile_.get();
  const double learning_rate = recipe_.learning_rate * schedule_.multiplier(state_.updates);
  double stalled = 0;
  const auto before_update = [&](std::size_t i) { stalled += writer_->wait_until_written(i); };
  std::optional<BackwardUpdate> fused;
  if (recipe_.optim_in_backward) {
    make_updater();
    fused.emplace(*updater_, decoder_->parameters(), learning_rate, before_update);
  }
  const double scale = state_.loss_scale.value;
  StepResult result = compute_gradients(context, *decoder_, step, fused ? &*fused : nullptr,
                                        recipe_.fp16 ? std::optional(scale) : std::nullopt);
  const bool in_range = !recipe_.fp16 || keeps_in_range(result);
  const bool applies = in_range && result.finite && result.num_targets > 0;
  if (!fused && applies) {
    make_updater();
    const float clip = clip_factor(result.grad_norm, recipe_.max_grad_norm);
    updater_->step(context, learning_rate, recipe_.fp16 ? static_cast<float>(clip / scale) : clip,
                   before_update);
  }
  if (stalled > 0) {
    engine_.facts().count("microseconds that updates waited for a save",
                          static_cast<std::int64_t>(stalled * 1e6));
  }
  if (applies) {
    ++state_.updates;
    state_.bad_in_row = 0;
    state_.window_loss += result.loss_sum;
    state_.window_targets += result.num_targets;
    state_.grad_norm = result.grad_norm;
    state_.learning_rate = learning_rate;
    state_.tokens += result.num_targets;
  }
  engine_.facts().count("segments: built", result.segments_built);
  engine_.facts().count("segments: used", result.segments_used);
  // An update that stopped midway counts: the optimizer's time has gone on.
  if (!result.finite && result.updated) ++state_.updates;
  ++state_.step;
  context.profile = nullptr;
  if (profile_) profile_->add_span(format("step {}", state_.step), begin, seconds_since(begin));
  state_.epoch = step.epoch;
  state_.stream = step.position;
  state_.flops += result.flops;
  const auto samples = static_cast<std::int64_t>(step.sample_ids.size());
  state_.samples += samples;
  process_samples_ += samples;
  const double seconds = seconds_since(begin);
  train_seconds_ += seconds;
  window_.seconds += seconds;
  window_.flops += result.flops;
  process_flops_ += result.flops;
  process_recomputed_flops_ += result.recomputed_flops;
  window_.tokens += result.num_tokens;
  process_tokens_ += result.num_tokens;
  window_.samples += samples;
  ++window_.steps;
  if (!result.finite) handle_bad_step(step, result);
  ProgressFigures figures;
  figures.step = state_.step;
  figures.total = total_steps_;
  progress_->update(figures, false);
}

// False: the scaled gradients of this step overflow f16, and a smaller scale may help the next one. At the
// least scale an overflow is a bad step.
bool Trainer::keeps_in_range(StepResult& result) {
  if (!std::isfinite(result.loss_sum) || result.num_targets == 0) return true;
  const bool overflow = result.overflow || !result.finite;
  const bool least = state_.loss_scale.value <= LossScale::kLeast;
  state_.loss_scale.update(overflow, recipe_.fp16_growth_interval);
  result.finite = !(overflow && least);
  if (!overflow || least) return true;
  ++state_.skipped;
  engine_.facts().count("steps skipped by loss scaling");
  return false;
}

void Trainer::handle_bad_step(const Step& step, const StepResult& result) {
  ++state_.skipped;
  ++state_.bad_in_row;
  engine_.facts().count("updates skipped");
  const std::string where = find_bad_tensor(engine_.context(), *decoder_, step);
  log_.warning(
      "step {}: loss {}, gradient norm {}: not finite, the update {} ({} in a row, {} allowed). "
      "First bad tensor: {}",
      state_.step, result.loss_sum / static_cast<double>(std::max<std::int64_t>(result.num_targets, 1)),
      result.grad_norm,
      result.updated ? "stopped there: optim_in_backward had changed other parameters before" : "is skipped",
      state_.bad_in_row, recipe_.max_bad_steps, where);
  if (state_.bad_in_row < recipe_.max_bad_steps) return;
  log_step();
  finish_save(true);
  fail(ErrorKind::diverged,
       "{} steps in a row were not finite; the weights are those before them. First bad tensor: {}. Lower "
       "learning_rate, "
       "set max_grad_norm, or look at the samples named",
       state_.bad_in_row, where);
}

// The best of the run so far, measured again once a minute: other work on the machine would make it too low.
void Trainer::measure_peak() {
  const auto begin = Clock::now();
  const double gflops =
      measure_matmul_peak(engine_.context().kernel, engine_.memory(), engine_.dtype(), false);
  info_.peak_flops = std::max(info_.peak_flops, gflops * 1e9);
  record_->set_peak_flops(info_.peak_flops);
  next_peak_ = train_seconds_ + 60;
  progress_->exclude(seconds_since(begin));
}

// A trace that cannot be written is a warning: the run is worth more.
void Trainer::write_trace() {
  const std::string path = folder_->trace_path();
  try {
    write_file_atomically(files_, path, chrome_trace(profile_->events()));
    progress_->clear();
    log_.info("steps {}-{}: every op's time is in {}, for chrome://tracing or ui.perfetto.dev",
              recipe_.profile_first, state_.step, path);
  } catch (const Error& error) {
    log_.warning("profile_steps: {}", error.what());
  }
  profile_.reset();
}

void Trainer::log_step() {
  StepMetrics m;
  m.step = state_.step;
  m.epoch = state_.epoch;
  if (state_.window_targets > 0) m.loss = state_.window_loss / static_cast<double>(state_.window_targets);
  m.learning_rate = state_.learning_rate.value_or(kUnknown);
  m.grad_norm = state_.grad_norm.value_or(kUnknown);
  if (recipe_.fp16) m.loss_scale = state_.loss_scale.value;
  m.tokens = state_.tokens;
  m.samples = state_.samples;
  m.skipped = state_.skipped;
  if (window_.seconds > 0) {
    const auto steps = static_cast<double>(window_.steps);
    m.seconds = window_.seconds / steps;
    m.tokens_per_second = static_cast<double>(window_.tokens) / window_.seconds;
    m.samples_per_second = static_cast<double>(window_.samples) / window_.seconds;
    if (info_.peak_flops > 0) m.mfu = window_.flops / window_.seconds / info_.peak_flops;
    m.data_wait = window_.wait / steps;
  }
  m.elapsed = seconds_since(started_);
  m.cores = cores_.cores();
  m.memory = process_use().resident;
  m.accounted = engine_.memory().use().total_current;
  metrics_->write(to_json(m));
  if (events_) events_->write(m);
  ProgressFigures figures;
  figures.step = m.step;
  figures.total = total_steps_;
  figures.loss = m.loss;
  figures.learning_rate = m.learning_rate;
  figures.grad_norm = m.grad_norm;
  figures.tokens_per_second = m.tokens_per_second;
  figures.samples_per_second = m.samples_per_second;
  figures.mfu = m.mfu;
  figures.cores = m.cores;
  figures.memory = m.memory;
  progress_->update(figures, true);
  state_.window_loss = 0;
  state_.window_targets = 0;
  window_ = {};
}

TrainOutcome train(FileSystem& files, const Recipe& recipe, const std::vector<std::string>& command_line,
                   Log& log) {
  Trainer trainer(files, recipe, command_line, log);
  return trainer.run();
}

}  // namespace lode
