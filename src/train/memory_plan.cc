#include "train/memory_plan.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/rehearsal.h"
#include "io/safetensors.h"
#include "kernels/matmul.h"
#include "train/planned_run.h"

namespace lode {
namespace {

std::vector<std::int64_t> largest_rows(const Rows& rows, std::int64_t count) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(rows.size()));
  std::iota(order.begin(), order.end(), 0);
  const auto kept = std::min<std::size_t>(order.size(), static_cast<std::size_t>(count));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                    [&](std::int64_t a, std::int64_t b) { return rows.num_tokens(a) > rows.num_tokens(b); });
  order.resize(kept);
  return order;
}

Batch full_rows(const Recipe& recipe, std::int64_t rows, std::int64_t vocabulary) {
  const auto length = static_cast<std::int32_t>(recipe.cutoff_len);
  std::vector<std::int32_t> lengths(static_cast<std::size_t>(rows), length);
  std::vector<std::int64_t> ids(lengths.size());
  std::iota(ids.begin(), ids.end(), 0);
  return make_batch(lengths, ids, [&](std::size_t, std::int32_t* out) {
    for (std::int32_t i = 0; i < length; ++i) out[i] = static_cast<std::int32_t>(i % vocabulary);
  });
}

LargestBatch describe(const Batch& batch) {
  LargestBatch out{.tokens = batch.num_tokens()};
  for (const Segment& segment : batch.segments().list()) {
    if (segment.padding) continue;
    ++out.samples;
    out.longest = std::max<std::int64_t>(out.longest, segment.length);
  }
  return out;
}

}  // namespace

Step largest_step(const Recipe& recipe, const Rows* rows, std::int64_t vocabulary) {
  Step step;
  const std::int64_t micro_batches = std::min<std::int64_t>(recipe.gradient_accumulation_steps, 2);
  for (std::int64_t i = 0; i < micro_batches; ++i) {
    if (rows != nullptr && rows->size() > 0) {
      step.micro_batches.push_back(
          make_batch(*rows, largest_rows(*rows, recipe.per_device_train_batch_size)));
    } else {
      step.micro_batches.push_back(full_rows(recipe, recipe.per_device_train_batch_size, vocabulary));
    }
    step.num_targets += step.micro_batches.back().num_targets();
  }
  return step;
}

std::optional<Batch> largest_evaluation(const Recipe& recipe, const DataSets& data, std::int64_t vocabulary) {
  if (recipe.eval_strategy == Recipe::When::no || !recipe.has_evaluation_data()) return std::nullopt;
  const std::int64_t rows = recipe.per_device_eval_batch_size;
  if (data.eval.empty()) return full_rows(recipe, rows, vocabulary);
  std::optional<Batch> largest;
  for (const EvalRows& set : data.eval) {
    const EvalBatches batches(set.rows, rows * recipe.cutoff_len);
    if (batches.size() == 0) continue;
    Batch batch = batches.make(batches.largest()).batch;
    if (!largest || batch.num_tokens() > largest->num_tokens()) largest = std::move(batch);
  }
  return largest;
}

// Tokens; 0: nothing is generated.
std::int64_t longest_prompt(const Recipe& recipe, const Tokenizer& tokenizer) {
  std::size_t longest = 0;
  // An empty one begins with a token, too.
  for (const std::string& prompt : recipe.generate_prompts)
    longest =
        std::max({longest, tokenizer.encode(prompt, {.add_special_tokens = true}).size(), std::size_t{1}});
  return static_cast<std::int64_t>(longest);
}

MemoryPlan plan_memory(FileSystem& files, const Recipe& recipe, const ModelParts& parts,
                       const std::string& model_path, const DataSets& data) {
  const std::int64_t vocabulary = parts.config.spec.vocab_size;
  const Step largest = largest_step(recipe, data.train.get(), vocabulary);
  const std::optional<Batch> evaluation = largest_evaluation(recipe, data, vocabulary);
  const Rehearsal rehearsal;
  const PlannedLoad load = plan_load(files, recipe, parts, model_path);
  PlannedRun run(files, recipe, parts, model_path);
  Context& context = run.engine().context();
  Profile profile;
  // The second one meets what the first has left in the pool. A captured one follows a recorded one.
  run.step(largest);
  if (recipe.graph == Recipe::Graph::captured) run.step(largest);
  context.profile = &profile;
  const std::uint64_t offloaded_before = run.offloaded_bytes();
  run.step(largest);
  // As the run does once a minute, for the utilisation that it shows.
  measure_matmul_peak(context.kernel, context.memory, context.dtype, false);
  const MemoryUse step = context.memory.use();
  MemoryPlan plan{.use = larger_of(load.use, step), .program = MemoryPlan::kProgram};
  context.profile = nullptr;
  const auto rehearse = [&](std::size_t& phase, const std::function<void()>& work) {
    context.memory.reset_peak();
    work();
    plan.use = larger_of(plan.use, context.memory.use());
    phase = context.memory.use().handed_peak;
  };
  if (evaluation) rehearse(plan.phases.evaluation, [&] { run.evaluate(*evaluation); });
  if (const std::int64_t prompt = longest_prompt(recipe, parts.tokenizer); prompt > 0)
    rehearse(plan.phases.samples, [&] { run.generate(prompt, recipe.generate_max_new_tokens); });
  // Both files of a checkpoint are written at the same time, and state that waits in a file is read for it.
  plan.phases.load = load.use.handed_peak + load.mapped;
  plan.phases.step = step.handed_peak;
  plan.phases.save = step.handed_peak + run.largest_stored_state() + 2 * SafetensorsWriter::kHeld;
  plan.phases.load_problem = load.problem;
  plan.largest = describe(largest.micro_batches.front());
  plan.micro_batches = static_cast<std::int64_t>(largest.micro_batches.size());
  for (const auto& [op, cost] : profile.ops()) {
    plan.step_flops += cost.flops;
    plan.step_bytes += cost.bytes;
  }
  // Beside the computation, but through its memory.
  plan.step_bytes += static_cast<double>(run.offloaded_bytes() - offloaded_before);
  return plan;
}

std::vector<std::pair<std::string, std::uint64_t>> MemoryPlan::rows() const {
  std::vector<std::pair<std::string, std::uint64_t>> out;
  for (int t = 0; t < kNumMemoryTags; ++t) {
    const std::size_t bytes = use.peak[static_cast<std::size_t>(t)];
    if (bytes != 0 && static_cast<MemoryTag>(t) != MemoryTag::program)
      out.emplace_back(name_of(static_cast<MemoryTag>(t)), bytes);
  }
  out.emplace_back("program", program + use.peak[static_cast<std::size_t>(MemoryTag::program)]);
  return out;
}

Json MemoryPlan::to_json() const {
  Json table = Json::object();
  for (const auto& [name, bytes] : rows()) table[name] = static_cast<std::int64_t>(bytes);
  Json times = Json::object();
  for (const auto& [name, bytes] : {std::pair{"load", phases.load},
                                    {"step", phases.step},
                                    {"evaluation", phases.evaluation},
                                    {"samples", phases.samples},
                                    {"save", phases.save}}) {
    if (bytes != 0) times[name] = static_cast<std::int64_t>(bytes + program);
  }
  if (!phases.load_problem.empty()) times["load_problem"] = phases.load_problem;
  return Json::object({{"bytes", table},
                       {"phases", std::move(times)},
                       {"peak", static_cast<std::int64_t>(peak())},
                       {"resident", static_cast<std::int64_t>(resident())},
                       {"largest_micro_batch", Json::object({{"tokens", largest.tokens},
                                                             {"samples", largest.samples},
                                                             {"longest_sample", largest.longest}})},
                       {"step_flops", step_flops}});
}

std::vector<std::string> MemoryPlan::lines() const {
  std::vector<std::string> out;
  for (const auto& [name, bytes] : rows()) {
    const char* note = name == "program" ? "  code, libraries, tokenizer, data" : "";
    out.push_back(format("{:<14} {:>12}{}", name, format_bytes(bytes), note));
  }
  // Peaks of tags are at moments of their own: together they can be more than was ever there.
  const auto phase = [&](std::string_view name, std::size_t bytes, const std::string& note) {
    out.push_back(format("{:<14} {:>12}  {}", name, format_bytes(bytes + program), note));
  };
  phase("load", phases.load,
        phases.load_problem.empty() ? "making the model and reading its weights"
                                    : "room for the weights alone: " + phases.load_problem);
  phase("step", phases.step, "forward, backward and update");
  if (phases.evaluation != 0) phase("evaluation", phases.evaluation, "the largest batch of the evaluations");
  if (phases.samples != 0) phase("samples", phases.samples, "the text that generate_prompts ask for");
  phase("save", phases.save, "a step while a checkpoint is written");
  out.push_back(format("{:<14} {:>12}  with {} of room, as memory_limit must allow", "peak",
                       format_bytes(peak()), format_bytes(kRoom)));
  out.push_back(format("{:<14} {:>12}  where memory_limit does not hold it to the peak", "resident",
                       format_bytes(resident())));
  out.push_back(format("largest micro-batch: {} tokens in {} samples, the longest of {}", largest.tokens,
                       largest.samples, largest.longest));
  return out;
}

}  // namespace lode
