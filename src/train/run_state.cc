#include "train/run_state.h"

#include "core/fail.h"

namespace lode {
namespace {

Json or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

std::optional<double> number_or_none(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional(json.as_double());
}

}  // namespace

Json RunState::to_json() const {
  return Json::object({
      {"step", step},
      {"updates", updates},
      {"tokens", tokens},
      {"samples", samples},
      {"skipped", skipped},
      {"flops", flops},
      {"epoch", epoch},
      {"bad_in_row", bad_in_row},
      {"window", Json::object({{"loss", window_loss},
                               {"targets", window_targets},
                               {"grad_norm", or_null(grad_norm)},
                               {"learning_rate", or_null(learning_rate)}})},
      {"best", Json::object({{"metric", or_null(best_metric)},
                             {"step", best_step},
                             {"evaluations_without_improvement", evaluations_without_improvement},
                             {"last_eval_step", last_eval_step}})},
      {"loss_scale", Json::object({{"value", loss_scale.value}, {"good_steps", loss_scale.good_steps}})},
      {"stream", stream},
      {"rows_per_step", rows_per_step},
      {"seed", std::to_string(seed)},
      {"data_seed", std::to_string(data_seed)},
      {"data_fingerprint", data_fingerprint},
      {"tokenizer_fingerprint", tokenizer_fingerprint},
      {"optimizer", optimizer},
      {"bf16", bf16},
      {"pure_bf16", pure_bf16},
      {"fp16", fp16},
      {"recipe", recipe},
  });
}

RunState RunState::from_json(const Json& json, const std::string& file) {
  try {
    RunState s;
    s.step = json.at("step").as_int();
    s.updates = json.at("updates").as_int();
    s.tokens = json.at("tokens").as_int();
    s.samples = json.at("samples").as_int();
    s.skipped = json.at("skipped").as_int();
    s.flops = json.at("flops").as_double();
    s.epoch = json.at("epoch").as_double();
    s.bad_in_row = json.at("bad_in_row").as_int();
    const Json& window = json.at("window");
    s.window_loss = window.at("loss").as_double();
    s.window_targets = window.at("targets").as_int();
    s.grad_norm = number_or_none(window.at("grad_norm"));
    s.learning_rate = number_or_none(window.at("learning_rate"));
    const Json& best = json.at("best");
    s.best_metric = number_or_none(best.at("metric"));
    s.best_step = best.at("step").as_int();
    s.evaluations_without_improvement = best.at("evaluations_without_improvement").as_int();
    s.last_eval_step = best.at("last_eval_step").as_int();
    if (const Json* position = json.find("stream")) s.stream = *position;
    s.rows_per_step = json.at("rows_per_step").as_int();
    s.seed = std::stoull(json.at("seed").as_string());
    s.data_seed = std::stoull(json.at("data_seed").as_string());
    s.data_fingerprint = json.at("data_fingerprint").as_string();
    s.tokenizer_fingerprint = json.at("tokenizer_fingerprint").as_string();
    s.optimizer = json.at("optimizer").as_string();
    s.bf16 = json.at("bf16").as_bool();
    if (const Json* scale = json.find("loss_scale"))
      s.loss_scale = {scale->at("value").as_double(), scale->at("good_steps").as_int()};
    if (const Json* half = json.find("fp16")) s.fp16 = half->as_bool();
    if (const Json* pure = json.find("pure_bf16")) s.pure_bf16 = pure->as_bool();
    s.recipe = json.at("recipe");
    if (s.step < 0 || s.updates < 0 || s.updates > s.step) fail(ErrorKind::data, "impossible step counts");
    return s;
  } catch (const std::exception& error) {
    fail(ErrorKind::data, "{}: not a run's state: {}", file, error.what());
  }
}

std::vector<std::string> resume_problems(const RunState& saved, const RunState& now) {
  std::vector<std::string> problems;
  const auto compare = [&problems](std::string_view what, const auto& was, const auto& is,
                                   std::string_view remedy) {
    if (was != is) problems.push_back(format("{} was {}, is {}: {}", what, was, is, remedy));
  };
  compare("the global batch (rows a step)", saved.rows_per_step, now.rows_per_step,
          "keep per_device_train_batch_size x gradient_accumulation_steps; only their split may change");
  compare("seed", saved.seed, now.seed, "give the run's own");
  compare("data_seed", saved.data_seed, now.data_seed, "give the run's own");
  compare("the tokenizer's fingerprint", saved.tokenizer_fingerprint, now.tokenizer_fingerprint,
          "use the tokenizer the run began with");
  compare("the training data's fingerprint", saved.data_fingerprint, now.data_fingerprint,
          "the data, its packing or its split changed since the save: restore it, or begin a new run");
  compare("optim", saved.optimizer, now.optimizer, "the saved optimizer state belongs to the other");
  compare("bf16", saved.bf16, now.bf16, "keep the precision");
  compare("pure_bf16", saved.pure_bf16, now.pure_bf16,
          "weights with and without f32 masters are not the same");
  compare("fp16", saved.fp16, now.fp16, "keep the precision");
  return problems;
}

}  // namespace lode
