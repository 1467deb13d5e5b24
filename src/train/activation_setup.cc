#include "train/activation_setup.h"

#include <algorithm>

#include "core/fail.h"
#include "core/file.h"
#include "core/rehearsal.h"
#include "ops/batch.h"
#include "train/activation_auto.h"

namespace lode {
namespace {

using A = Recipe::Activations;
using R = Recipe::RecomputeKind;

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

ActivationPolicy recompute_policy(const Recipe& recipe) {
  ActivationPolicy policy;
  policy.recompute = recipe.recompute == R::selective ? ActivationPolicy::Recompute::selective
                                                      : ActivationPolicy::Recompute::full;
  if (recipe.recompute == R::every_k) policy.every = recipe.recompute_interval;
  const auto names = [&](const char* module) {
    return std::ranges::find(recipe.recompute_modules, module) != recipe.recompute_modules.end();
  };
  policy.norms = names("norm");
  policy.mlp = names("mlp");
  policy.attention = names("attention");
  return policy;
}

std::string describe(const ActivationPolicy& policy) {
  using Recompute = ActivationPolicy::Recompute;
  if (policy.recompute == Recompute::none) return "keep";
  if (policy.recompute == Recompute::selective) {
    std::vector<std::string> names;
    if (policy.norms) names.emplace_back("norm");
    if (policy.mlp) names.emplace_back("mlp");
    if (policy.attention) names.emplace_back("attention");
    return format("{}recompute {} of every block",
                  policy.offload != nullptr ? "offload what blocks save and " : "", join(names));
  }
  return format("{}recompute {}", policy.offload != nullptr ? "offload inputs and " : "",
                policy.every == 1 ? "every block" : format("one of {} blocks", policy.every));
}

std::int64_t quotient_up(std::int64_t n, std::int64_t of) {
  return (n + of - 1) / of;
}

// Of the largest micro-batch that the recipe allows.
std::int64_t largest_tokens(const Recipe& recipe) {
  return quotient_up(recipe.per_device_train_batch_size * recipe.cutoff_len, kTokenMultiple) * kTokenMultiple;
}

// Numbers that a block's ops save of a token, but for statistics: sums and results of norms, what products
// make, the attention's result.
std::int64_t saved_width(const DecoderSpec& spec, const ActivationPolicy& policy) {
  const std::int64_t q = spec.heads * spec.head_dim, qk = q + spec.kv_heads * spec.head_dim;
  const std::int64_t up = (spec.mlp == MlpKind::gated ? 2 : 1) * spec.intermediate;
  return 2 * spec.hidden * (policy.norms ? 1 : 2) + (spec.head_norms ? qk : 0) + qk +
         spec.kv_heads * spec.head_dim + (policy.attention ? 0 : q) + up +
         (policy.mlp ? 0 : spec.intermediate) + (spec.post_norms ? 2 * spec.hidden : 0);
}

// Bytes that wait in the file at the end of the forward: inputs of recomputed blocks, or what blocks save.
std::uint64_t waiting_bytes(const Recipe& recipe, const DecoderSpec& spec, const ActivationPolicy& policy,
                            DType dtype) {
  const bool inputs = policy.recompute == ActivationPolicy::Recompute::full;
  const std::int64_t numbers =
      inputs ? quotient_up(spec.layers, policy.every) * spec.hidden : spec.layers * saved_width(spec, policy);
  return static_cast<std::uint64_t>(numbers * largest_tokens(recipe)) * size_of(dtype);
}

const std::string& folder_of(const Recipe& recipe) {
  return recipe.offload_dir.empty() ? recipe.output_dir : recipe.offload_dir;
}

OffloadBuffers buffers_of(const Recipe& recipe) {
  if (recipe.offload_synchronous) return OffloadBuffers::none;
  return recipe.double_buffer ? OffloadBuffers::two : OffloadBuffers::one;
}

std::unique_ptr<Offload> open_offload(FileSystem& files, const Recipe& recipe, std::uint64_t bytes) {
  const std::string& folder = folder_of(recipe);
  if (Rehearsal::active()) return std::make_unique<Offload>(folder, buffers_of(recipe));
  if (!files.is_directory(folder)) {
    fail(ErrorKind::usage, "offload_dir: {} is {}: make the folder, or name another", folder,
         files.exists(folder) ? "no folder" : "not there");
  }
  if (const std::uint64_t room = files.free_space(folder); room < bytes) {
    fail(ErrorKind::data,
         "offload_dir: {} has {} free, and what waits there needs {}: name a folder with more room, or lower "
         "per_device_train_batch_size or cutoff_len",
         folder, format_bytes(room), format_bytes(bytes));
  }
  return std::make_unique<Offload>(folder, buffers_of(recipe));
}

void set_offload_fact(Facts& facts, const Recipe& recipe, const Offload& offload, std::uint64_t bytes) {
  const char* const kNames[] = {"synchronous", "one buffer", "two buffers"};
  const char* name = kNames[static_cast<int>(buffers_of(recipe))];
  facts.set({"offload", name,
             format("{}, {}, {}", name,
                    recipe.offload_synchronous ? "on the computing thread" : "one background thread",
                    offload.direct() ? "direct I/O" : "through the page cache"),
             format("{} at most in {}{}", format_bytes(bytes), folder_of(recipe),
                    offload.direct() ? "" : "; its file system has no direct I/O")});
}

// The cheapest that fits.
Activations choose_by_budget(FileSystem& files, const Recipe& recipe, Decoder& decoder, Engine& engine) {
  const std::uint64_t bytes =
      waiting_bytes(recipe, decoder.spec(), {.recompute = ActivationPolicy::Recompute::full}, engine.dtype());
  Activations out;
  out.offload = open_offload(files, recipe, bytes);
  const FittingPolicy fitting = fit_activations(engine.context(), decoder, largest_tokens(recipe),
                                                parse_bytes(recipe.activation_memory), *out.offload);
  out.policy = fitting.policy;
  engine.facts().set({"activations", format("auto, at most {}", recipe.activation_memory),
                      describe(out.policy), format("largest micro-batch: {}", fitting.measured)});
  out.offload = out.policy.offload == nullptr ? nullptr : open_offload(files, recipe, bytes);
  out.policy.offload = out.offload.get();
  if (out.offload) set_offload_fact(engine.facts(), recipe, *out.offload, bytes);
  return out;
}

}  // namespace

Activations choose_activations(FileSystem& files, const Recipe& recipe, Decoder& decoder, Engine& engine) {
  Activations out;
  if (recipe.activation_policy == A::automatic) return choose_by_budget(files, recipe, decoder, engine);
  if (recipe.activation_policy == A::keep) {
    engine.facts().set({"activations", "keep", "keep", "asked"});
    return out;
  }
  out.policy = recompute_policy(recipe);
  const bool offloads = recipe.activation_policy == A::offload;
  const std::uint64_t bytes = waiting_bytes(recipe, decoder.spec(), out.policy, engine.dtype());
  if (offloads) {
    out.offload = open_offload(files, recipe, bytes);
    out.policy.offload = out.offload.get();
    set_offload_fact(engine.facts(), recipe, *out.offload, bytes);
  }
  engine.facts().set(
      {"activations", offloads ? "offload" : "recompute", describe(out.policy), "the same bits as keep"});
  return out;
}

std::string advice_on_slow_offload(const Recipe& recipe, const OffloadCounts& counts, double seconds) {
  if (counts.time_stalled <= 0.1 * seconds) return "";
  return format(
      "the computation waited {:.1f} s of {:.1f} s for offloaded tensors in {} ({} written and read). A "
      "folder on a faster disk helps{}; activation_policy: recompute needs no disk",
      counts.time_stalled, seconds, folder_of(recipe), format_bytes(counts.bytes_written + counts.bytes_read),
      buffers_of(recipe) == OffloadBuffers::two ? "" : ", and so does checkpoint.double_buffer: true");
}

std::unique_ptr<GraphCapture> choose_graph(Facts& facts, const Recipe& recipe,
                                           std::function<void(const std::string&)> say) {
  if (recipe.graph == Recipe::Graph::dynamic) {
    facts.set({"graph", "dynamic", "dynamic", "asked"});
    return nullptr;
  }
  facts.set({"graph", "captured", "captured",
             "micro-steps replay the memory plan of the first one with their number of tokens"});
  return std::make_unique<GraphCapture>(std::move(say));
}

void count_capture(Facts& facts, const CaptureCounts& counts) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  facts.count("graph: micro-steps captured", counts.recorded);
  facts.count("graph: captured again", counts.recorded_again);
  facts.count("graph: replayed", counts.replayed);
  facts.count("graph: stayed dynamic", counts.dynamic);
  facts.count("graph: MiB of the largest arena", static_cast<std::int64_t>(counts.largest_arena / kMiB));
}

void count_offload(Facts& facts, const OffloadCounts& counts) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  facts.count("offload: tensors written", counts.written);
  facts.count("offload: tensors read", counts.read);
  facts.count("offload: MiB written", static_cast<std::int64_t>(counts.bytes_written / kMiB));
  facts.count("offload: MiB read", static_cast<std::int64_t>(counts.bytes_read / kMiB));
  facts.count("offload: stalls", counts.stalls);
  facts.count("offload: microseconds stalled", static_cast<std::int64_t>(counts.time_stalled * 1e6));
}

}  // namespace lode
