#include "train/optimizer_setup.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "optim/state.h"

namespace lode {
namespace {

// optim_args: what an optimizer asks for is taken, the rest refused.
class Arguments {
 public:
  explicit Arguments(const std::string& text) {
    std::string entry;
    for (const char c : text + ",") {
      if (c == ' ') continue;
      if (c != ',') {
        entry += c;
        continue;
      }
      if (entry.empty()) continue;
      const std::size_t equals = entry.find('=');
      if (equals == std::string::npos || equals == 0)
        fail(ErrorKind::usage, "optim_args: expected name=value, found \"{}\"", entry);
      values_[entry.substr(0, equals)] = entry.substr(equals + 1);
      entry.clear();
    }
  }

  double number(const std::string& name, double otherwise) {
    const std::string text = take(name);
    if (text.empty()) return otherwise;
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      fail(ErrorKind::usage, "optim_args: {}: expected a number, found \"{}\"", name, text);
    return value;
  }
  std::int64_t count(const std::string& name, std::int64_t otherwise) {
    const double value = number(name, static_cast<double>(otherwise));
    if (value < 1 || value > 1e9 || value != static_cast<double>(static_cast<std::int64_t>(value)))
      fail(ErrorKind::usage, "optim_args: {}: expected a whole number from 1, found {}", name, value);
    return static_cast<std::int64_t>(value);
  }
  bool flag(const std::string& name, bool otherwise) {
    return choice<bool>(
        name, otherwise,
        {{"true", true}, {"True", true}, {"1", true}, {"false", false}, {"False", false}, {"0", false}});
  }
  template <class T>
  T choice(const std::string& name, T otherwise, const std::vector<std::pair<std::string, T>>& choices) {
    const std::string text = take(name);
    if (text.empty()) return otherwise;
    std::string known;
    for (const auto& [spelling, value] : choices) {
      if (spelling == text) return value;
      known += (known.empty() ? "" : ", ") + spelling;
    }
    fail(ErrorKind::usage, "optim_args: {}: expected one of {}, found \"{}\"", name, known, text);
  }
  void finish(const std::string& optimizer) const {
    if (values_.empty()) return;
    fail(ErrorKind::usage, "optim_args: {} has no option \"{}\"; it has {}", optimizer,
         values_.begin()->first, asked_.empty() ? "none" : asked_);
  }

 private:
  std::string take(const std::string& name) {
    asked_ += (asked_.empty() ? "" : ", ") + name;
    const auto found = values_.find(name);
    if (found == values_.end()) return "";
    std::string value = found->second;
    values_.erase(found);
    return value;
  }

  std::map<std::string, std::string> values_;
  std::string asked_;
};

AdamWOptions adamw_of(const Recipe& r) {
  return {r.adam_beta1, r.adam_beta2, r.adam_epsilon, r.weight_decay};
}

ProjectedSide side_of(Recipe::Side side) {
  switch (side) {
    case Recipe::Side::std:
      return ProjectedSide::standard;
    case Recipe::Side::reverse_std:
      return ProjectedSide::reverse_standard;
    case Recipe::Side::right:
      return ProjectedSide::right;
    case Recipe::Side::left:
      return ProjectedSide::left;
  }
  return ProjectedSide::standard;
}

ProjectedSide side_argument(Arguments& arguments) {
  return arguments.choice<ProjectedSide>("proj_type", ProjectedSide::standard,
                                         {{"std", ProjectedSide::standard},
                                          {"reverse_std", ProjectedSide::reverse_standard},
                                          {"right", ProjectedSide::right},
                                          {"left", ProjectedSide::left}});
}

BlockOrder order_of(Recipe::Switching order) {
  switch (order) {
    case Recipe::Switching::ascending:
      return BlockOrder::ascending;
    case Recipe::Switching::descending:
      return BlockOrder::descending;
    case Recipe::Switching::random:
      return BlockOrder::random;
    case Recipe::Switching::fixed:
      return BlockOrder::fixed;
  }
  return BlockOrder::ascending;
}

// The use_* methods of LLaMA-Factory.
OptimizerOptions by_method(const Recipe& r, std::int64_t head_size) {
  const AdamWOptions adamw = adamw_of(r);
  const auto seed = static_cast<std::uint64_t>(r.seed);
  if (r.use_galore) {
    return GaloreOptions{.adamw = adamw,
                         .targets = r.galore_target,
                         .rank = r.galore_rank,
                         .update_interval = r.galore_update_interval,
                         .scale = r.galore_scale,
                         .side = side_of(r.galore_proj_type),
                         .state_8bit = r.optim == "adamw_8bit"};
  }
  if (r.use_apollo) {
    return ApolloOptions{.adamw = adamw,
                         .targets = r.apollo_target,
                         .rank = r.apollo_rank,
                         .update_interval = r.apollo_update_interval,
                         .scale = r.apollo_scale,
                         .scale_type = r.apollo_scale_type == Recipe::ApolloScaling::tensor
                                           ? ApolloScale::tensor
                                           : ApolloScale::channel,
                         .side = side_of(r.apollo_proj_type),
                         .scale_front = r.apollo_scale_front,
                         .seed = seed};
  }
  if (r.use_badam) {
    return BadamOptions{.adamw = adamw,
                        .order = order_of(r.badam_switch_mode),
                        .switch_interval = r.badam_switch_interval,
                        .start_block = r.badam_start_block.value_or(-1),
                        .seed = seed};
  }
  if (r.use_adam_mini) return AdamMiniOptions{.adamw = adamw, .head_size = head_size};
  return MuonOptions{.adamw = adamw};
}

// The values of `optim`, with optim_args.
OptimizerOptions by_name(const Recipe& r, std::int64_t head_size, Arguments& a) {
  const AdamWOptions adamw = adamw_of(r);
  const std::vector<std::string> targets =
      r.optim_target_modules.empty() ? std::vector<std::string>{"all"} : r.optim_target_modules;
  if (r.optim == "adamw_8bit") return AdamW8bitOptions{adamw, a.count("min_8bit_size", 4096)};
  if (r.optim == "adafactor") {
    return AdafactorOptions{.clip_threshold = a.number("clip_threshold", 1),
                            .decay_rate = a.number("decay_rate", -0.8),
                            .beta1 = a.number("beta1", 0),
                            .weight_decay = r.weight_decay,
                            .scale_parameter = a.flag("scale_parameter", false),
                            .relative_step = a.flag("relative_step", false),
                            .warmup_init = a.flag("warmup_init", false)};
  }
  if (r.optim == "lion_32bit") return LionOptions{r.adam_beta1, r.adam_beta2, r.weight_decay};
  if (r.optim == "lion_8bit") {
    return Lion8bitOptions{{r.adam_beta1, r.adam_beta2, r.weight_decay}, a.count("min_8bit_size", 4096)};
  }
  if (r.optim == "sgd") {
    return SgdOptions{.momentum = a.number("momentum", 0),
                      .dampening = a.number("dampening", 0),
                      .weight_decay = r.weight_decay,
                      .nesterov = a.flag("nesterov", false)};
  }
  if (r.optim == "adam_mini") return AdamMiniOptions{.adamw = adamw, .head_size = head_size};
  if (r.optim == "muon") {
    return MuonOptions{.adamw = adamw,
                       .momentum = a.number("momentum", 0.95),
                       .steps = static_cast<int>(std::min<std::int64_t>(a.count("ns_steps", 5), 99)),
                       .nesterov = a.flag("nesterov", true),
                       .scale = a.choice<MuonScale>("adjust_lr_fn", MuonScale::match_rms,
                                                    {{"original", MuonScale::original},
                                                     {"match_rms_adamw", MuonScale::match_rms},
                                                     {"spectral_unclamped", MuonScale::spectral}})};
  }
  if (r.optim.starts_with("galore_adamw")) {
    return GaloreOptions{.adamw = adamw,
                         .targets = targets,
                         .rank = a.count("rank", 128),
                         .update_interval = a.count("update_proj_gap", 200),
                         .scale = a.number("scale", 0.25),
                         .side = side_argument(a),
                         .state_8bit = r.optim.ends_with("8bit")};
  }
  if (r.optim == "apollo_adamw") {
    return ApolloOptions{.adamw = adamw,
                         .targets = targets,
                         .rank = a.count("rank", 1),
                         .update_interval = a.count("update_proj_gap", 200),
                         .scale = a.number("scale", 128),
                         .scale_type = a.choice<ApolloScale>(
                             "scale_type", ApolloScale::tensor,
                             {{"tensor", ApolloScale::tensor}, {"channel", ApolloScale::channel}}),
                         .side = side_argument(a),
                         .seed = static_cast<std::uint64_t>(r.seed)};
  }
  return adamw;
}

bool has_method(const Recipe& r) {
  return r.use_galore || r.use_apollo || r.use_badam || r.use_adam_mini || r.use_muon;
}

// The modules that a method of matrices takes; nullptr: no such method.
const std::vector<std::string>* targets_of(const OptimizerOptions& options) {
  static const std::vector<std::string> all{"all"};
  if (const auto* galore = std::get_if<GaloreOptions>(&options)) return &galore->targets;
  if (const auto* apollo = std::get_if<ApolloOptions>(&options)) return &apollo->targets;
  return std::holds_alternative<MuonOptions>(options) ? &all : nullptr;
}

}  // namespace

std::string optimizer_name(const Recipe& r) {
  if (r.use_galore) return r.optim == "adamw_8bit" ? "galore_adamw_8bit" : "galore_adamw";
  if (r.use_apollo) return "apollo_adamw";
  if (r.use_badam) return "badam";
  if (r.use_adam_mini) return "adam_mini";
  return r.use_muon ? "muon" : r.optim;
}

OptimizerOptions optimizer_options(const Recipe& recipe, std::int64_t head_size) {
  Arguments arguments(recipe.optim_args);
  OptimizerOptions options =
      has_method(recipe) ? by_method(recipe, head_size) : by_name(recipe, head_size, arguments);
  arguments.finish(optimizer_name(recipe));
  return options;
}

std::unique_ptr<ParameterUpdater> make_updater(Context& context, const Recipe& recipe,
                                               ParameterList& parameters, const OptimizerOptions& options) {
  std::unique_ptr<StateStore> store;
  if (!recipe.optim_offload_dir.empty())
    store = std::make_unique<StateStore>(recipe.optim_offload_dir, parameters.all().size());
  const auto rounding = recipe.pure_bf16_rounding == Recipe::Rounding::kahan ? WeightRounding::kahan
                                                                             : WeightRounding::stochastic;
  return std::make_unique<ParameterUpdater>(context, parameters, make_optimizer(options), rounding,
                                            std::move(store));
}

void check_optimizer_targets(const OptimizerOptions& options, const ParameterList& parameters) {
  const auto* targets = targets_of(options);
  if (targets == nullptr) return;
  for (const std::string& target : *targets) {
    if (std::ranges::none_of(parameters.all(), [&](const Parameter& parameter) {
          return parameter.trainable() && is_target(parameter, {target});
        })) {
      fail(ErrorKind::usage, "the optimizer's target \"{}\" names no linear module that is trained", target);
    }
  }
}

std::string describe_optimizer_coverage(const OptimizerOptions& options, const ParameterList& parameters) {
  const auto* targets = targets_of(options);
  if (targets == nullptr) return "";
  std::int64_t taken = 0, others = 0;
  for (const Parameter& parameter : parameters.all()) {
    if (!parameter.trainable()) continue;
    (is_target(parameter, *targets) ? taken : others) += 1;
  }
  return format(
      "{} matrices; AdamW for {} others (embeddings, head, norms, biases, modules that are no target)", taken,
      others);
}

}  // namespace lode
