// What happens before the first step.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/fail.h"
#include "kernels/elementwise.h"
#include "models/hub.h"
#include "models/peft.h"
#include "models/weights.h"
#include "train/batch_size.h"
#include "train/chat_setup.h"
#include "train/optimizer_setup.h"
#include "train/planned_run.h"
#include "train/trainer.h"

namespace lode {
namespace {

Schedule make_schedule(const Recipe& recipe, std::int64_t total_steps) {
  Schedule schedule;
  schedule.total_steps = total_steps;
  schedule.warmup_steps =
      recipe.warmup_steps > 0
          ? recipe.warmup_steps
          : static_cast<std::int64_t>(std::ceil(recipe.warmup_ratio * static_cast<double>(total_steps)));
  schedule.num_cycles = recipe.num_cycles;
  if (recipe.min_lr_ratio) schedule.min_lr_ratio = *recipe.min_lr_ratio;
  if (recipe.min_lr) schedule.min_lr_ratio = *recipe.min_lr / recipe.learning_rate;
  if (recipe.num_decay_steps) schedule.decay_steps = *recipe.num_decay_steps;
  switch (recipe.decay_type) {
    case Recipe::DecayShape::linear:
      schedule.decay = Schedule::Decay::linear;
      break;
    case Recipe::DecayShape::cosine:
      schedule.decay = Schedule::Decay::cosine;
      break;
    case Recipe::DecayShape::one_minus_sqrt:
      schedule.decay = Schedule::Decay::one_minus_sqrt;
      break;
  }
  switch (recipe.lr_scheduler_type) {
    case Recipe::Scheduler::linear:
      schedule.kind = ScheduleKind::linear;
      break;
    case Recipe::Scheduler::cosine:
    case Recipe::Scheduler::cosine_with_min_lr:
      schedule.kind = ScheduleKind::cosine;
      break;
    case Recipe::Scheduler::constant:
      schedule.kind = ScheduleKind::constant;
      schedule.warmup_steps = 0;
      break;
    case Recipe::Scheduler::constant_with_warmup:
      schedule.kind = ScheduleKind::constant;
      break;
    case Recipe::Scheduler::warmup_stable_decay:
      schedule.kind = ScheduleKind::warmup_stable_decay;
      break;
  }
  return schedule;
}

EngineOptions with_memory_limit(EngineOptions options, std::size_t limit) {
  options.memory_limit = tensor_limit(limit);
  return options;
}

}  // namespace

Trainer::Trainer(FileSystem& files, const Recipe& recipe, std::vector<std::string> command_line, Log& log)
    : files_(files),
      recipe_(recipe),
      command_line_(std::move(command_line)),
      log_(log),
      memory_limit_(memory_limit_bytes(recipe.memory_limit)),
      engine_(with_memory_limit(engine_options(recipe), memory_limit_)) {
  require_recipe_files(files_, recipe_);
  folder_.emplace(files_, recipe_, engine_.threads(), log_);
  for (const std::string& notice : recipe_.notices) log_.info("{}", notice);
  resumed_ = folder_->resume_from();
  read_parts();
  if (recipe_.streaming) choose_batch();  // a stream is cut as it is read
  data_ = prepare_data_sets(files_, recipe_, parts_->tokenizer, engine_.threads(), log_);
  choose_batch();
  if (data_.train) {
    const auto seed = static_cast<std::uint64_t>(recipe_.data_seed.value_or(recipe_.seed));
    loader_ = std::make_unique<StepLoader>(
        data_.train, LoaderOptions{.seed = seed,
                                   .rows_per_micro_batch = recipe_.per_device_train_batch_size,
                                   .micro_batches_per_step = recipe_.gradient_accumulation_steps,
                                   .shuffle = !recipe_.disable_shuffling});
    steps_per_epoch_ = loader_->num_steps_per_epoch();
  }
  total_steps_ = recipe_.max_steps > 0
                     ? recipe_.max_steps
                     : static_cast<std::int64_t>(
                           std::ceil(recipe_.num_train_epochs * static_cast<double>(steps_per_epoch_)));
  schedule_ = make_schedule(recipe_, total_steps_);
  make_state();
  plan_run();
  make_model();
  if (recipe_.use_badam) make_updater();  // it says which layers have gradients
  decoder_->parameters().allocate_gradients(recipe_.optim_in_backward);
  activations_ = choose_activations(files_, recipe_, *decoder_, engine_);
  decoder_->set_activation_policy(activations_.policy);
  decoder_->set_metadata_cache(recipe_.metadata_cache);
  capture_ = choose_graph(engine_.facts(), recipe_, [this](const std::string& text) {
    progress_->clear();
    log_.info("{}", text);
  });
  engine_.context().capture = capture_.get();
  writer_ = std::make_unique<CheckpointWriter>(files_);
}

Trainer::~Trainer() = default;

// What was adapted, what was not, and why.
void Trainer::show_coverage() const {
  const ParameterList& parameters = decoder_->parameters();
  if (parameters.policy().all_trainable()) return;
  log_.info(
      "trained: {} of {} parameters ({:.2f} %)", short_parameter_count(parameters.trainable_numel()),
      short_parameter_count(parameters.numel()),
      100.0 * static_cast<double>(parameters.trainable_numel()) / static_cast<double>(parameters.numel()));
  if (!parameters.policy().adapter) return;
  for (const CoverageRow& row : parameters.coverage()) {
    log_.info("  {:<16} {:>4} of {:<4} {:<16} {:>10}  {}", row.module, row.adapted, row.modules, row.how,
              row.trainable == 0 ? "" : short_parameter_count(row.trainable), row.why);
  }
}

void Trainer::make_model() {
  Context& context = engine_.context();
  WeightPolicy policy = weight_policy(files_, recipe_, model_path_, *parts_, engine_.dtype());
  choose_frozen_compute(engine_.facts(), recipe_.frozen_compute, engine_.dtype(), policy);
  const bool adapter = policy.adapter.has_value();
  decoder_ = std::make_unique<Decoder>(context, parts_->config.spec, parts_->config.names, std::move(policy));
  if (recipe_.neftune_noise_alpha)
    decoder_->set_embedding_noise(static_cast<float>(*recipe_.neftune_noise_alpha));
  const bool whole_checkpoint = resumed_ && !adapter;
  ModelConfig stored = parts_->config;
  if (whole_checkpoint) stored.stored_rows = 0;  // it has the rows that the base lacks
  const bool initial = recipe_.train_from_scratch && !resumed_;
  load_values(files_, stored,
              initial            ? ""
              : whole_checkpoint ? resumed_->path
                                 : model_path_,
              resumed_ ? resumed_->path : recipe_.adapter_name_or_path, *decoder_, context);
  show_coverage();
  if (recipe_.fp16) scan_weights();
  if (resumed_) load_optimizer();
  load_use_ = engine_.memory().use();
  engine_.memory().reset_peak();
}

// What f16 would do to the weights.
void Trainer::scan_weights() {
  F16Range all;
  std::int64_t scanned = 0;
  std::string first;
  for (const Parameter& parameter : decoder_->parameters().all()) {
    if (parameter.quantized()) continue;
    const F16Range range = range_for_f16(engine_.context().kernel, parameter.values());
    if (range.overflows > 0 && first.empty()) first = parameter.name;
    all.largest = std::max(all.largest, range.largest);
    all.overflows += range.overflows;
    all.vanishing += range.vanishing;
    scanned += parameter.numel();
  }
  if (all.overflows > 0) {
    log_.warning(
        "fp16: {} of {} weights are beyond f16's range of 65504 (the first in {}): on hardware that computes "
        "in f16 they are infinite; choose bf16: true",
        all.overflows, scanned, first);
  }
  log_.info("fp16: the largest weight is {:.3g}; {} of {} would become 0 in f16", all.largest, all.vanishing,
            scanned);
}

void Trainer::read_parts() {
  model_path_ = resolve_model_path(files_, recipe_.model_name_or_path);
  parts_ = read_recipe_parts(files_, recipe_, model_path_);
  if (!recipe_.adapter_name_or_path.empty())
    require_adapter_tokenizer(files_, recipe_.adapter_name_or_path, parts_->tokenizer);
  if (recipe_.stage == Recipe::Stage::sft)
    parts_->tokenizer = with_named_template(parts_->tokenizer, recipe_.chat_template);
  const DecoderSpec& spec = parts_->config.spec;
  if (recipe_.cutoff_len > spec.max_positions) {
    const auto text = format("cutoff_len {} is beyond the model's {} positions ({})", recipe_.cutoff_len,
                             spec.max_positions, parts_->config.file);
    if (spec.position == PositionKind::learned) fail(ErrorKind::usage, "{}: lower it", text);
    log_.warning("{}", text);
  }
  for (const std::string& prompt : recipe_.generate_prompts) {
    const auto tokens =
        static_cast<std::int64_t>(parts_->tokenizer.encode(prompt, {.add_special_tokens = true}).size());
    if (tokens >= spec.max_positions) {
      fail(ErrorKind::usage,
           "generate_prompts: a prompt has {} tokens; the model's context is {}: shorten it", tokens,
           spec.max_positions);
    }
  }
  report_model_facts(engine_.facts(), spec, true);
  if (const std::int64_t rows = parts_->config.stored_rows; rows > 0) {
    engine_.facts().set({"vocabulary", format("{} tokens", parts_->tokenizer.vocab_size()),
                         format("{} rows", spec.vocab_size),
                         format("the base has {}; new rows begin near their mean", rows)});
  }
}

void Trainer::make_state() {
  state_.rows_per_step = recipe_.per_device_train_batch_size * recipe_.gradient_accumulation_steps;
  state_.seed = static_cast<std::uint64_t>(recipe_.seed);
  state_.data_seed = static_cast<std::uint64_t>(recipe_.data_seed.value_or(recipe_.seed));
  state_.data_fingerprint = data_.stream ? data_.stream->fingerprint() : data_.train->fingerprint();
  if (recipe_.disable_shuffling) state_.data_fingerprint += " in order";
  state_.tokenizer_fingerprint = parts_->tokenizer.fingerprint();
  state_.optimizer = optimizer_name(recipe_);
  state_.bf16 = engine_.dtype() == DType::bf16;
  state_.pure_bf16 = recipe_.pure_bf16;
  state_.fp16 = recipe_.fp16;
  state_.loss_scale.value = recipe_.fp16_initial_scale;
  state_.recipe = recipe_.to_json();
  if (!resumed_) return;
  const std::string file = join_path(resumed_->path, "lode_state.json");
  RunState saved = RunState::from_json(read_checkpoint_state(files_, resumed_->path), file);
  const auto problems = resume_problems(saved, state_);
  if (!problems.empty()) {
    std::string list;
    for (const std::string& problem : problems) list += "\n  " + problem;
    fail(ErrorKind::data, "{}: the run cannot go on from this checkpoint:{}", resumed_->path, list);
  }
  for (const auto& [key, value] : state_.recipe.as_object()) {
    const Json* before = saved.recipe.find(key);
    if (key == "resume_from_checkpoint" || key == "overwrite_output_dir" || before == nullptr ||
        *before == value)
      continue;
    log_.info("changed since the checkpoint: {} was {}, is {}", key, before->dump(), value.dump());
  }
  saved.recipe = state_.recipe;
  state_ = std::move(saved);
  if (data_.stream) data_.stream->seek(state_.stream);
}

void Trainer::choose_batch() {
  if (recipe_.per_device_train_batch_size != Recipe::kAutoBatch) return;
  std::optional<EarlierBatch> earlier;
  if (resumed_) {
    const RunState saved = RunState::from_json(read_checkpoint_state(files_, resumed_->path),
                                               join_path(resumed_->path, "lode_state.json"));
    earlier = {saved.rows_per_step, saved.recipe.at("per_device_train_batch_size").as_int()};
  }
  const auto fact = choose_batch_size(files_, recipe_, *parts_, model_path_, data_, memory_limit_, earlier);
  engine_.facts().set(*fact);
}

// Before weights are read: a run that does not fit ends here.
void Trainer::plan_run() {
  plan_ = plan_memory(files_, recipe_, *parts_, model_path_, data_);
  require_fits(files_, recipe_, *parts_, model_path_, data_, plan_, memory_limit_);
}

void Trainer::make_updater() {
  if (updater_) return;
  const ParameterList& parameters = decoder_->parameters();
  const OptimizerOptions options = optimizer_options(recipe_, decoder_->spec().head_dim);
  check_optimizer_targets(options, parameters);
  const std::string coverage = describe_optimizer_coverage(options, parameters);
  if (!coverage.empty()) log_.info("{}: {}", optimizer_name(recipe_), coverage);
  updater_ = lode::make_updater(engine_.context(), recipe_, decoder_->parameters(), options);
}

void Trainer::load_optimizer() {
  const std::string optimizer_file = join_path(resumed_->path, "optimizer.safetensors");
  if (!files_.exists(optimizer_file)) {
    fail(ErrorKind::data,
         "{}: the checkpoint has no optimizer.safetensors (save_only_model): it is a model, not a run to go "
         "on with",
         resumed_->path);
  }
  make_updater();
  updater_->set_time(engine_.context(), state_.updates);
  const auto& parameters = decoder_->parameters().all();
  const WeightSet file(files_, optimizer_file);
  LoadOptions options{.threads = engine_.threads()};
  // Of a parameter at a time, the others' are left aside.
  if (updater_->store() != nullptr) options.may_ignore = [](std::string_view) { return true; };
  const auto load = [&](std::vector<TensorTarget>& targets) {
    load_tensors(file, std::exchange(targets, {}), options);
  };
  std::vector<TensorTarget> targets;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::vector<Tensor> state = updater_->load_state(engine_.context(), i);
    const auto names = updater_->state_names(i);
    for (std::size_t k = 0; k < state.size(); ++k) {
      const View view = state[k].view();
      targets.push_back({format("{}.{}", parameters[i].name, names[k]), {view.rows, view.cols}, view});
    }
    if (updater_->store() != nullptr) load(targets);
    updater_->keep_state(i, std::move(state));
  }
  load(targets);
}

RunInfo Trainer::run_info() {
  const DecoderSpec& spec = decoder_->spec();
  RunInfo info;
  info.command_line = command_line_;
  info.output_dir = recipe_.output_dir;
  info.task = recipe_.stage == Recipe::Stage::sft ? "sft" : "pretrain";
  info.parameters = decoder_->parameters().numel();
  info.trainable_parameters = decoder_->parameters().trainable_numel();
  info.flops_per_token = decoder_->training_flops_per_token(recipe_.cutoff_len);
  info.total_steps = total_steps_;
  info.start_step = state_.step;
  info.model = Json::object({{"type", spec.model_type},
                             {"layers", spec.layers},
                             {"hidden", spec.hidden},
                             {"heads", spec.heads},
                             {"kv_heads", spec.kv_heads},
                             {"intermediate", spec.intermediate},
                             {"vocabulary", spec.vocab_size},
                             {"tied_head", spec.tied_head},
                             {"from", recipe_.train_from_scratch ? "scratch: " + parts_->config.file
                                                                 : recipe_.model_name_or_path}});
  if (data_.stream) {
    info.data = Json::object({{"fingerprint", state_.data_fingerprint},
                              {"streamed files", static_cast<std::int64_t>(data_.stream->sources().size())},
                              {"bytes", data_.stream->num_bytes()}});
  } else {
    info.data = Json::object({{"fingerprint", state_.data_fingerprint},
                              {"rows", data_.train->size()},
                              {"steps_per_epoch", steps_per_epoch_}});
    info.packing = data_.train->report().to_json();
  }
  info.tokenizer = Json::object({{"vocabulary", static_cast<std::int64_t>(parts_->tokenizer.vocab_size())},
                                 {"fingerprint", state_.tokenizer_fingerprint}});
  info.batch = Json::object({{"rows", state_.rows_per_step},
                             {"micro_batch_rows", recipe_.per_device_train_batch_size},
                             {"micro_batches", recipe_.gradient_accumulation_steps},
                             {"row_tokens", recipe_.cutoff_len}});
  info.recipe = recipe_.to_json();
  make_updater();
  info.memory_plan = plan_.rows();
  info.memory_load = load_use_;
  return info;
}

void Trainer::open_records() {
  if (recipe_.strict) engine_.facts().refuse_substitutions();
  folder_->begin(files_);
  cut_back_metrics(files_, folder_->metrics_path(), state_.step);
  metrics_ = std::make_unique<MetricsLog>(files_, folder_->metrics_path(), log_);
  if (std::ranges::find(recipe_.report_to, "tensorboard") != recipe_.report_to.end()) {
    events_ = std::make_unique<EventWriter>(files_, folder_->log_path(), log_,
                                            resumed_ ? std::optional(state_.step) : std::nullopt);
    events_->text("recipe", state_.step, "```yaml\n" + recipe_.to_yaml() + "```");
  }
  write_file_atomically(files_, folder_->in("recipe.yaml"), recipe_.to_yaml());
  const SystemInfo system = read_system();
  info_ = run_info();
  record_ = std::make_unique<RunRecord>(files_, folder_->in("run.json"), info_, system);
  record_->write_start(engine_.facts(), engine_.memory().use());
  log_.info("{}", banner(info_, system, engine_.facts()));
  if (resumed_) log_.info("resuming from {} at step {} of {}", resumed_->path, state_.step, total_steps_);
  auto options = progress_options();
  if (recipe_.disable_tqdm) options.terminal = false;
  progress_ = std::make_unique<Progress>(log_, state_.step, total_steps_, options);
}

}  // namespace lode
