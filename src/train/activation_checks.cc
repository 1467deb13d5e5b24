// Checks of the keys of what is kept between forward and backward.
#include "core/fail.h"
#include "train/recipe_checks.h"

namespace lode {
namespace {

using A = Recipe::Activations;
using R = Recipe::RecomputeKind;

class ActivationChecker {
 public:
  ActivationChecker(Recipe& recipe, RecipeReading& reading) : recipe_(recipe), reading_(reading) {}

  // The policy that the other keys ask for, where it is not given.
  void resolve() {
    const bool given = is_set("activation_policy");
    for (const auto& [key, asked, policy] :
         {std::tuple{"activation_offloading", recipe_.activation_offloading, A::offload},
          {"gradient_checkpointing", recipe_.gradient_checkpointing, A::recompute},
          {"recompute", is_set("recompute"), A::recompute}}) {
      if (!asked) continue;
      if (given && recipe_.activation_policy == A::keep) {
        problem("{} ({}) and activation_policy: keep ({}) contradict each other; keep one", key, where(key),
                where("activation_policy"));
      }
      if (recipe_.activation_policy == A::keep) recipe_.activation_policy = policy;
    }
  }

  void check() {
    const A policy = recipe_.activation_policy;
    const bool recomputes = policy == A::recompute || policy == A::offload;
    belongs("recompute_interval", recomputes && recipe_.recompute == R::every_k, "recompute: every_k");
    belongs("recompute_modules", recomputes && recipe_.recompute == R::selective, "recompute: selective");
    const bool may_offload = policy == A::offload || policy == A::automatic;
    for (const char* key : {"offload_dir", "checkpoint.double_buffer", "checkpoint.synchronous"})
      belongs(key, may_offload, "activation_policy: offload or auto");
    if (!may_offload && is_set("checkpoint.double_buffer") && recipe_.double_buffer) {
      recipe_.notices.push_back(
          "checkpoint.double_buffer has no effect here: nothing is offloaded without activation_policy: "
          "offload or "
          "auto");
    }
    belongs("recompute", policy != A::automatic, "activation_policy: recompute or offload");
    belongs("activation_memory", policy == A::automatic, "activation_policy: auto");
    if (policy == A::automatic && recipe_.activation_memory.empty()) {
      problem("activation_policy: auto ({}) needs activation_memory, the most that activations may take",
              where("activation_policy"));
    }
    if (recipe_.offload_synchronous && is_set("checkpoint.double_buffer") && recipe_.double_buffer) {
      problem(
          "checkpoint.synchronous ({}) and checkpoint.double_buffer ({}) contradict each other: nothing is "
          "read ahead synchronously; keep one",
          where("checkpoint.synchronous"), where("checkpoint.double_buffer"));
    }
    if (recipe_.recompute_modules.empty())
      problem("recompute_modules ({}) names none: choose norm, mlp or attention", where("recompute_modules"));
  }

 private:
  // An option that was given a value of its own but has no meaning without `needs`.
  void belongs(const std::string& key, bool meant, const std::string& needs) {
    if (meant || !is_set(key)) return;
    const Key& known = *find_key(key).key;
    if (known.get(recipe_) == known.get(Recipe())) return;
    problem("{} ({}) means nothing without {}", key, where(key), needs);
  }
  bool is_set(const std::string& key) const { return reading_.set.contains(key); }
  std::string where(const std::string& key) const {
    const auto found = reading_.set.find(key);
    return found == reading_.set.end() ? "default" : found->second;
  }
  template <class... Args>
  void problem(std::string_view pattern, const Args&... args) {
    reading_.problems.push_back(format(pattern, args...));
  }

  Recipe& recipe_;
  RecipeReading& reading_;
};

}  // namespace

void check_activations(Recipe& recipe, RecipeReading& reading) {
  ActivationChecker checker(recipe, reading);
  checker.resolve();
  checker.check();
}

}  // namespace lode
