#include "nn/adapter.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "nn/parameter.h"

namespace lode {
namespace {

bool adaptable(ModuleKind kind) {
  return kind == ModuleKind::linear || kind == ModuleKind::embedding || kind == ModuleKind::head;
}

bool is_table(ModuleKind kind) {
  return kind == ModuleKind::embedding || kind == ModuleKind::head;
}

bool any_names(const std::vector<std::string>& entries, std::string_view module) {
  return std::ranges::any_of(entries, [module](const auto& entry) { return names_module(entry, module); });
}

std::string_view last_part(std::string_view module) {
  return module.substr(module.rfind('.') + 1);
}

// "model.layers.3.mlp.up_proj" is the layer 3 and "mlp"; -1 outside of layers.
struct Place {
  std::int64_t layer = -1;
  std::string_view inner;
};

Place place_of(std::string_view module) {
  for (std::size_t begin = 0; begin < module.size();) {
    const std::size_t end = std::min(module.find('.', begin), module.size());
    const std::string_view part = module.substr(begin, end - begin);
    if (!part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; })) {
      const std::string_view rest = module.substr(std::min(end + 1, module.size()));
      return {std::stoll(std::string(part)), rest.substr(0, rest.find('.'))};
    }
    begin = end + 1;
  }
  return {};
}

bool is_trained(const FreezeSpec& freeze, std::string_view module) {
  const Place place = place_of(module);
  if (place.layer < 0)
    return std::ranges::find(freeze.extra_modules, last_part(module)) != freeze.extra_modules.end();
  const std::int64_t n = freeze.trainable_layers;
  const bool chosen = n > 0 ? place.layer >= freeze.num_layers - n : place.layer < -n;
  return chosen && std::ranges::any_of(freeze.modules, [&place](const std::string& name) {
           return name == "all" || name == place.inner;
         });
}

void add_once(std::vector<std::string>& list, std::string_view name) {
  if (std::ranges::find(list, name) == list.end()) list.emplace_back(name);
}

std::string joined(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& entry : list) text += (text.empty() ? "" : ", ") + entry;
  return text;
}

// Each wanted name must be one of those that exist.
void check_names(std::string_view key, const std::vector<std::string>& wanted,
                 const std::vector<std::string>& existing) {
  for (const std::string& name : wanted) {
    if (std::ranges::find(existing, name) == existing.end())
      fail(ErrorKind::usage, "{}: the model has no \"{}\"; there are {}", key, name, joined(existing));
  }
}

}  // namespace

void quantize_linears(WeightPolicy& policy, QuantFormat format) {
  policy.format = [format](const std::string&, ModuleKind kind) {
    return kind == ModuleKind::linear ? std::optional(format) : std::nullopt;
  };
}

bool names_module(const std::string& entry, std::string_view module) {
  if (!module.ends_with(entry)) return false;
  return module.size() == entry.size() || module[module.size() - entry.size() - 1] == '.';
}

WithoutAdapters::WithoutAdapters(Context& context)
    : context_(context),
      adapters_(std::exchange(context.adapters, false)),
      tape_(std::exchange(context.tape, nullptr)) {}

WithoutAdapters::~WithoutAdapters() {
  context_.adapters = adapters_;
  context_.tape = tape_;
}

bool ParameterList::trains_base(const std::string& name) const {
  if (policy_.adapter) return false;
  if (policy_.freeze) return is_trained(*policy_.freeze, name.substr(0, name.rfind('.')));
  return policy_.train_base;
}

ParameterList::Module& ParameterList::module(const std::string& name, ModuleKind kind) {
  const auto found = std::ranges::find(modules_, name, &Module::name);
  if (found != modules_.end()) return *found;
  Module added{name, kind};
  if (policy_.adapter) {
    const AdapterSpec& spec = *policy_.adapter;
    added.copy = any_names(spec.additional_targets, name) || (spec.whole_tables && is_table(kind));
    const bool all = kind == ModuleKind::linear &&
                     std::ranges::find(spec.targets, std::string_view("all")) != spec.targets.end();
    added.lora = !added.copy && adaptable(kind) && (all || any_names(spec.targets, name));
  }
  return modules_.emplace_back(std::move(added));
}

std::optional<ParameterList::LoraPlan> ParameterList::plan_lora(const std::string& name, ModuleKind kind) {
  if (!module(name, kind).lora) return std::nullopt;
  const AdapterSpec& spec = *policy_.adapter;
  LoraPlan plan{spec.rank, spec.alpha, 0, spec.dropout};
  for (const auto& [entry, rank] : spec.ranks) {
    if (names_module(entry, name)) plan.rank = rank;
  }
  for (const auto& [entry, alpha] : spec.alphas) {
    if (names_module(entry, name)) plan.alpha = alpha;
  }
  if (plan.rank < 1)
    fail(spec.from_file ? ErrorKind::data : ErrorKind::usage, "{}: a LoRA rank of {}: it must be at least 1",
         name, plan.rank);
  const auto rank = static_cast<double>(plan.rank);
  plan.scale = static_cast<float>(plan.alpha / (spec.rslora ? std::sqrt(rank) : rank));
  return plan;
}

void ParameterList::check_policy() const {
  std::vector<std::string> adaptable_names, names, inner, outer;
  for (const Module& m : modules_) {
    if (adaptable(m.kind)) add_once(adaptable_names, last_part(m.name));
    add_once(names, last_part(m.name));
    const Place place = place_of(m.name);
    place.layer < 0 ? add_once(outer, last_part(m.name)) : add_once(inner, place.inner);
  }
  if (policy_.freeze) {
    std::vector<std::string> wanted = policy_.freeze->modules;
    std::erase(wanted, "all");
    check_names("freeze_trainable_modules", wanted, inner);
    check_names("freeze_extra_modules", policy_.freeze->extra_modules, outer);
  }
  if (!policy_.adapter || policy_.adapter->from_file) return;
  const auto check_targets = [this](std::string_view key, const std::vector<std::string>& targets,
                                    const auto& accepts, const std::vector<std::string>& existing) {
    for (const std::string& target : targets) {
      if (target == "all" && key == "lora_target") continue;
      const bool found = std::ranges::any_of(
          modules_, [&](const Module& m) { return accepts(m) && names_module(target, m.name); });
      if (!found) {
        fail(ErrorKind::usage, "{}: the model has no module \"{}\" that can be adapted so; there are {}", key,
             target, joined(existing));
      }
    }
  };
  check_targets(
      "lora_target", policy_.adapter->targets, [](const Module& m) { return adaptable(m.kind); },
      adaptable_names);
  check_targets(
      "additional_target", policy_.adapter->additional_targets, [](const Module&) { return true; }, names);
}

ParameterList::Adapted ParameterList::adapted_modules() const {
  // Plain endings, as PEFT compares modules_to_save: "norm" would also be "input_layernorm".
  const auto listed = [this](bool Module::*chosen) {
    std::vector<std::string> list;
    for (const Module& m : modules_) {
      if (!(m.*chosen)) continue;
      const bool whole = std::ranges::all_of(modules_, [&](const Module& other) {
        return other.*chosen || !other.name.ends_with(last_part(m.name));
      });
      add_once(list, whole ? last_part(m.name) : std::string_view(m.name));
    }
    return list;
  };
  return {listed(&Module::lora), listed(&Module::copy)};
}

std::vector<CoverageRow> ParameterList::coverage() const {
  std::vector<CoverageRow> rows;
  for (const Module& m : modules_) {
    const std::string name(last_part(m.name));
    auto row = std::ranges::find(rows, name, &CoverageRow::module);
    if (row == rows.end()) {
      rows.push_back({.module = name, .how = "-"});
      row = rows.end() - 1;
      if (m.kind == ModuleKind::linear) {
        row->why = "not in lora_target";
      } else if (m.kind == ModuleKind::norm) {
        row->why = "a norm has no matrix; additional_target would train it";
      } else if (m.kind == ModuleKind::positions) {
        row->why = "learned positions; additional_target would train them";
      } else {
        row->why = m.kind == ModuleKind::head ? "the head is not part of \"all\"; name it in lora_target"
                                              : "an embedding is not part of \"all\"; name it in lora_target";
      }
    }
    ++row->modules;
    if (m.copy) {
      ++row->adapted;
      row->how = "full copy";
      row->why = policy_.adapter->whole_tables && is_table(m.kind) ? "new tokens: trained and saved whole"
                                                                   : "named in additional_target";
    } else if (m.lora) {
      ++row->adapted;
      row->why = any_names(policy_.adapter->targets, m.name) ? "named in lora_target"
                                                             : "lora_target: all linear modules";
    }
  }
  for (const LoraPair& pair : pairs_) {
    const auto row = std::ranges::find(rows, last_part(pair.module), &CoverageRow::module);
    row->how = format("lora, rank {}", pair.rank);
    row->trainable += parameters_[pair.a].numel() + parameters_[pair.b].numel();
  }
  for (const FullCopy& copy : copies_) {
    const Parameter& p = parameters_[copy.copy];
    const auto row = std::ranges::find(rows, last_part(copy.module), &CoverageRow::module);
    if (shares_copy(copy)) {
      row->how = "the same copy";
      row->why = "tied to the embedding";
    } else if (p.trainable()) {
      row->trainable += p.numel();
    }
  }
  return rows;
}

}  // namespace lode
