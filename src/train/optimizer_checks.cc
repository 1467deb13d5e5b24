// The optimizer's keys against each other.
#include "core/fail.h"
#include "train/optimizer_setup.h"
#include "train/recipe_checks.h"

namespace lode {
namespace {

struct Method {
  const char* key;
  bool on;
  const char* prefix;  // of its options; "" when it has none
  bool whole_weights;  // not for adapters
};

// Options that were given a value of their own although their method is off.
void check_options(const Recipe& recipe, RecipeReading& reading, const std::vector<Method>& methods) {
  for (const Key& key : recipe_keys()) {
    const auto at = reading.set.find(key.name);
    if (at == reading.set.end() || key.support != Key::Support::full) continue;
    for (const Method& method : methods) {
      if (method.on || *method.prefix == '\0' || !key.name.starts_with(method.prefix)) continue;
      if (key.get(recipe) == key.get(Recipe())) continue;
      reading.problems.push_back(
          format("{} ({}) means nothing without {}: true", key.name, at->second, method.key));
    }
  }
}

}  // namespace

void check_optimizer(const Recipe& recipe, RecipeReading& reading) {
  const std::vector<Method> methods = {{"use_galore", recipe.use_galore, "galore_", true},
                                       {"use_apollo", recipe.use_apollo, "apollo_", true},
                                       {"use_badam", recipe.use_badam, "badam_", true},
                                       {"use_adam_mini", recipe.use_adam_mini, "", false},
                                       {"use_muon", recipe.use_muon, "", false}};
  const auto where = [&](const std::string& key) {
    const auto found = reading.set.find(key);
    return found == reading.set.end() ? "default" : found->second;
  };
  const auto problem = [&](std::string_view pattern, const auto&... args) {
    reading.problems.push_back(format(pattern, args...));
  };
  const Method* chosen = nullptr;
  for (const Method& method : methods) {
    if (!method.on) continue;
    if (chosen != nullptr) {
      problem("{} ({}) and {} ({}) contradict each other: choose one optimizer", chosen->key,
              where(chosen->key), method.key, where(method.key));
      return;
    }
    chosen = &method;
  }
  check_options(recipe, reading, methods);
  const bool projects = recipe.optim.starts_with("galore_") || recipe.optim == "apollo_adamw";
  const bool lora = recipe.finetuning_type == Recipe::Tuning::lora;
  if (chosen != nullptr) {
    const bool with_8bit = recipe.use_galore && recipe.optim == "adamw_8bit";
    if (recipe.optim != "adamw_torch" && !with_8bit) {
      problem("{} ({}) and optim: {} ({}) contradict each other: choose one optimizer", chosen->key,
              where(chosen->key), recipe.optim, where("optim"));
    }
    if (chosen->whole_weights && lora) {
      problem("{} ({}) needs finetuning_type full or freeze: an adapter is low-rank already", chosen->key,
              where(chosen->key));
    }
  } else if (projects && lora) {
    problem("optim: {} ({}) needs finetuning_type full or freeze: an adapter is low-rank already",
            recipe.optim, where("optim"));
  }
  if (!recipe.optim_target_modules.empty() && (!projects || chosen != nullptr)) {
    problem(
        "optim_target_modules ({}) means nothing without optim: galore_adamw, galore_adamw_8bit or "
        "apollo_adamw",
        where("optim_target_modules"));
  }
  if (recipe.optim_in_backward && recipe.max_grad_norm > 0) {
    problem(
        "optim_in_backward ({}) updates before the norm of all gradients is known, so nothing can be "
        "clipped: "
        "set max_grad_norm: 0 (it is {}, {})",
        where("optim_in_backward"), recipe.max_grad_norm, where("max_grad_norm"));
  }
  if (recipe.optim_in_backward && recipe.gradient_accumulation_steps > 1) {
    problem(
        "optim_in_backward ({}) and gradient_accumulation_steps: {} ({}) contradict each other: gradients "
        "that are accumulated live through the whole step; set gradient_accumulation_steps: 1",
        where("optim_in_backward"), recipe.gradient_accumulation_steps, where("gradient_accumulation_steps"));
  }
  if (!recipe.optim_offload_dir.empty() && recipe.use_badam) {
    problem(
        "optim_offload_dir ({}) and use_badam ({}) contradict each other: BAdam keeps the state of one layer "
        "alone and has nothing to offload",
        where("optim_offload_dir"), where("use_badam"));
  }
  if (recipe.pure_bf16 && lora) {
    problem(
        "pure_bf16 ({}) needs finetuning_type full or freeze: an adapter's weights are small and stay f32, "
        "the frozen base is bf16 with bf16: true",
        where("pure_bf16"));
  }
  if (recipe.pure_bf16 && recipe.bf16 == false)
    problem("pure_bf16 ({}) and bf16: false ({}) contradict each other", where("pure_bf16"), where("bf16"));
  if (!recipe.pure_bf16 && recipe.pure_bf16_rounding != Recipe().pure_bf16_rounding)
    problem("pure_bf16_rounding ({}) means nothing without pure_bf16: true", where("pure_bf16_rounding"));
  try {
    make_optimizer(optimizer_options(recipe, 0));
  } catch (const Error& error) {
    problem("optim_args ({}): {}", where("optim_args"), error.what());
  }
}

}  // namespace lode
