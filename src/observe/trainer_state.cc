#include "observe/trainer_state.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace lode {
namespace {

Json sorted(const Json& value) {
  if (value.is_array()) {
    Json out = Json::array();
    for (const Json& item : value.as_array()) out.push_back(sorted(item));
    return out;
  }
  if (!value.is_object()) return value;
  Json::Object members = value.as_object();
  std::ranges::sort(members, {}, &Json::Member::first);
  for (auto& [key, item] : members) item = sorted(item);
  Json out = Json::object();
  out.as_object() = std::move(members);
  return out;
}

void copy(Json& to, std::string_view to_key, const Json& from, std::string_view from_key) {
  if (const Json* value = from.find(from_key)) to[to_key] = *value;
}

// The line of log_history for one line of metrics; null when it has none (samples).
Json history_entry(const Json& record, const std::string& main_set) {
  Json entry;
  if (record.find("loss") != nullptr) {
    for (const char* key : {"epoch", "grad_norm", "learning_rate", "loss", "step"})
      copy(entry, key, record, key);
  } else if (const Json* set = record.find("eval_set"); set != nullptr && set->is_string()) {
    const std::string prefix = set->as_string() == main_set ? "eval_" : "eval_" + set->as_string() + "_";
    copy(entry, "epoch", record, "epoch");
    copy(entry, "step", record, "step");
    static constexpr std::array<std::string_view, 4> kResults = {"loss", "perplexity", "bits_per_byte",
                                                                 "token_accuracy"};
    for (const auto name : kResults) {
      const Json* value = record.find("eval_" + std::string(name));
      if (value != nullptr && !value->is_null()) entry[prefix + std::string(name)] = *value;
    }
  }
  return entry;
}

// Hugging Face writes whole epochs without a point.
Json whole_or_double(double value) {
  const bool whole = value == std::floor(value) && std::abs(value) < 1e15;
  return whole ? Json(static_cast<std::int64_t>(value)) : Json(value);
}

Json trainer_control(bool stopping) {
  return Json::object({{"args", Json::object({{"should_epoch_stop", false},
                                              {"should_evaluate", false},
                                              {"should_log", false},
                                              {"should_save", true},
                                              {"should_training_stop", stopping}})},
                       {"attributes", Json::object()}});
}

}  // namespace

std::string make_trainer_state(const TrainerState& state) {
  Json history = Json::array();
  for (const Json& record : state.metrics) {
    const Json* step = record.find("step");
    if (step == nullptr || !step->is_int() || step->as_int() > state.step) continue;
    if (Json entry = history_entry(record, state.main_eval_set); entry.is_object())
      history.push_back(std::move(entry));
  }
  const bool best = state.best_metric.has_value();
  Json out = Json::object(
      {{"best_global_step", best ? Json(state.best_step) : Json()},
       {"best_metric", best ? Json(*state.best_metric) : Json()},
       {"best_model_checkpoint", state.best_checkpoint.empty() ? Json() : Json(state.best_checkpoint)},
       {"epoch", state.epoch},
       {"eval_steps", state.eval_steps},
       {"global_step", state.step},
       {"is_hyper_param_search", false},
       {"is_local_process_zero", true},
       {"is_world_process_zero", true},
       {"log_history", history},
       {"logging_steps", state.logging_steps},
       {"max_steps", state.max_steps},
       {"num_input_tokens_seen", state.tokens_seen},
       {"num_train_epochs", whole_or_double(state.num_train_epochs)},
       {"save_steps", state.save_steps},
       {"stateful_callbacks", Json::object({{"TrainerControl", trainer_control(state.stopping)}})},
       {"total_flos", state.total_flops},
       {"train_batch_size", state.train_batch_size},
       {"trial_name", Json()},
       {"trial_params", Json()}});
  return sorted(out).dump(2) + "\n";
}

}  // namespace lode
