// The search for what makes a run fit.
#include <algorithm>
#include <cmath>
#include <functional>

#include "train/memory_plan.h"

namespace lode {
namespace {

// Processors differ, but not much in this: products do some twenty FLOPs in the time of a byte from memory.
constexpr double kFlopsPerByte = 20;

struct Change {
  std::vector<std::string> text;  // empty: as it is
  std::function<void(Recipe&)> apply;
};

std::vector<Change> batch_changes(const Recipe& recipe) {
  std::vector<Change> out{{}};
  if (recipe.optim_in_backward) return out;  // which cannot accumulate
  std::int64_t rows = recipe.per_device_train_batch_size, times = recipe.gradient_accumulation_steps;
  while (rows % 2 == 0) {
    rows /= 2;
    times *= 2;
    std::vector<std::string> text{format("per_device_train_batch_size={}", rows)};
    if (!recipe.global_batch_size) text.push_back(format("gradient_accumulation_steps={}", times));
    out.push_back({std::move(text), [rows, times](Recipe& r) {
                     r.per_device_train_batch_size = rows;
                     r.gradient_accumulation_steps = times;
                   }});
  }
  return out;
}

std::vector<Change> optimizer_changes(const Recipe& recipe) {
  std::vector<Change> out{{}};
  const bool plain = !recipe.use_galore && !recipe.use_apollo && !recipe.use_badam && !recipe.use_muon &&
                     !recipe.use_adam_mini;
  if (plain && recipe.optim == "adamw_torch" && recipe.optim_args.empty())
    out.push_back({{"optim=adamw_8bit"}, [](Recipe& r) { r.optim = "adamw_8bit"; }});
  return out;
}

std::vector<Change> activation_changes(const Recipe& recipe) {
  using A = Recipe::Activations;
  std::vector<Change> out{{}};
  if (recipe.activation_policy != A::keep) return out;
  const auto recompute = [](Recipe::RecomputeKind kind) {
    return [kind](Recipe& r) {
      r.activation_policy = A::recompute;
      r.recompute = kind;
    };
  };
  out.push_back(
      {{"activation_policy=recompute", "recompute=selective"}, recompute(Recipe::RecomputeKind::selective)});
  out.push_back({{"activation_policy=recompute"}, recompute(Recipe::RecomputeKind::full)});
  out.push_back({{"activation_policy=offload", "recompute=selective"}, [](Recipe& r) {
                   r.activation_policy = A::offload;
                   r.recompute = Recipe::RecomputeKind::selective;
                 }});
  out.push_back({{"activation_policy=offload"}, [](Recipe& r) { r.activation_policy = A::offload; }});
  return out;
}

std::vector<Change> base_changes(const Recipe& recipe) {
  std::vector<Change> out{{}};
  if (recipe.finetuning_type != Recipe::Tuning::lora) return out;
  for (const std::int64_t bits : {8, 4}) {
    if (recipe.quantization_bit && *recipe.quantization_bit <= bits) continue;
    out.push_back({{format("quantization_bit={}", bits)}, [bits](Recipe& r) { r.quantization_bit = bits; }});
  }
  return out;
}

bool too_large(std::size_t phase, const MemoryPlan& plan, std::size_t limit) {
  return phase != 0 && phase + plan.program + MemoryPlan::kRoom > limit;
}

// Its batches bound the memory of an evaluation, not its result.
std::vector<Change> evaluation_changes(const Recipe& recipe, const MemoryPlan& plan, std::size_t limit) {
  std::vector<Change> out{{}};
  if (too_large(plan.phases.evaluation, plan, limit) && recipe.per_device_eval_batch_size > 1)
    out.push_back({{"per_device_eval_batch_size=1"}, [](Recipe& r) { r.per_device_eval_batch_size = 1; }});
  return out;
}

// The samples of a run are for the eye: they can be as short as by default.
std::vector<Change> sample_changes(const Recipe& recipe, const MemoryPlan& plan, std::size_t limit) {
  std::vector<Change> out{{}};
  const std::int64_t tokens = Recipe{}.generate_max_new_tokens;
  if (too_large(plan.phases.samples, plan, limit) && recipe.generate_max_new_tokens > tokens) {
    out.push_back({{format("generate_max_new_tokens={}", tokens)},
                   [tokens](Recipe& r) { r.generate_max_new_tokens = tokens; }});
  }
  return out;
}

// Time of the same samples, in FLOPs of products.
double work_of(const Recipe& recipe, const MemoryPlan& plan) {
  const auto times =
      static_cast<double>(recipe.gradient_accumulation_steps) / static_cast<double>(plan.micro_batches);
  return times * (plan.step_flops + kFlopsPerByte * plan.step_bytes);
}

}  // namespace

std::vector<MemoryFix> find_memory_fixes(FileSystem& files, const Recipe& recipe, const ModelParts& parts,
                                         const std::string& model_path, const DataSets& data,
                                         std::size_t limit, std::size_t count) {
  const auto planned = [&](const Recipe& changed) {
    return plan_memory(files, changed, parts, model_path, data);
  };
  const MemoryPlan plan_before = planned(recipe);
  const double before = work_of(recipe, plan_before);
  std::vector<MemoryFix> fixes;
  const std::vector<std::vector<Change>> dimensions = {batch_changes(recipe),
                                                       activation_changes(recipe),
                                                       optimizer_changes(recipe),
                                                       base_changes(recipe),
                                                       evaluation_changes(recipe, plan_before, limit),
                                                       sample_changes(recipe, plan_before, limit)};
  std::size_t combinations = 1;
  for (const auto& changes : dimensions) combinations *= changes.size();
  // The first changes nothing.
  for (std::size_t number = 1; number < combinations; ++number) {
    Recipe changed = recipe;
    MemoryFix fix;
    std::size_t rest = number;
    for (const auto& changes : dimensions) {
      const Change& change = changes[rest % changes.size()];
      rest /= changes.size();
      fix.changes.insert(fix.changes.end(), change.text.begin(), change.text.end());
      if (change.apply) change.apply(changed);
    }
    const MemoryPlan plan = planned(changed);
    fix.peak = plan.peak();
    fix.slow_down = before > 0 ? work_of(changed, plan) / before : 1;
    if (fix.peak < plan_before.peak()) fixes.push_back(std::move(fix));
  }
  const auto end =
      std::partition(fixes.begin(), fixes.end(), [&](const MemoryFix& fix) { return fix.peak <= limit; });
  if (end == fixes.begin()) {  // none fits
    std::ranges::sort(fixes, {}, &MemoryFix::peak);
    if (fixes.size() > 1) fixes.resize(1);
    return fixes;
  }
  fixes.erase(end, fixes.end());
  // The cheapest; of equally cheap ones the least to change, then the least memory.
  std::ranges::sort(fixes, [](const MemoryFix& a, const MemoryFix& b) {
    const auto cost = [](const MemoryFix& fix) { return std::lround(fix.slow_down * 100); };
    return std::tuple(cost(a), a.changes.size(), a.peak) < std::tuple(cost(b), b.changes.size(), b.peak);
  });
  if (fixes.size() > count) fixes.resize(count);
  return fixes;
}

std::vector<std::string> fix_lines(const std::vector<MemoryFix>& fixes, std::size_t limit) {
  if (fixes.empty()) {
    return {
        "no change of batch, activations, optimizer or quantisation makes it need less: use a smaller model "
        "or cutoff_len"};
  }
  std::vector<std::string> lines{fixes.front().peak > limit ? "no change is enough; the nearest:"
                                                            : "what makes it fit, cheapest first:"};
  for (const MemoryFix& fix : fixes) {
    std::string changes;
    for (const std::string& change : fix.changes) changes += (changes.empty() ? "" : " ") + change;
    lines.push_back(format("  {}: {}, {:.2f} x the time", changes, format_bytes(fix.peak), fix.slow_down));
  }
  return lines;
}

}  // namespace lode
