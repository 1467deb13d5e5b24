// Keys of what is kept between forward and backward.
#include <algorithm>

#include "core/fail.h"
#include "train/activation_auto.h"
#include "train/keys_build.h"

namespace lode {
namespace {

const std::string kNested = "the training block";

void add_recompute_keys(KeyTable& t) {
  using R = Recipe::RecomputeKind;
  t.choice<R>(
       "recompute", &Recipe::recompute,
       {{R::full, "full", {}}, {R::selective, "selective", {}}, {R::every_k, "every_k", {}}},
       "What activation_policy: recompute or offload makes again: whole blocks from their inputs (full), "
       "the results of recompute_modules (selective), or whole blocks, each recompute_interval-th only "
       "(every_k). What is not made again stays in memory; with offload, blocks' inputs (full, every_k) "
       "or all else that blocks save (selective) wait in a file.")
      .alias("recompute_granularity", kMegatron);
  t.integer("recompute_interval", &Recipe::recompute_interval, {.min = 2, .max = 100000},
            "The k of recompute: every_k.");
  Key& modules = t.list("recompute_modules", &Recipe::recompute_modules,
                        "With recompute: selective, whose results are made again: norm, mlp (its "
                        "activation), attention.");
  modules.set = [set = modules.set](Recipe& recipe, const YamlNode& node) {
    set(recipe, node);
    for (std::string& name : recipe.recompute_modules) {
      if (name == "layernorm") name = "norm";
      if (name == "core_attn") name = "attention";
      if (name != "norm" && name != "mlp" && name != "attention")
        fail(ErrorKind::usage, "expected norm, mlp or attention, found \"{}\"", name);
    }
  };
}

}  // namespace

void add_activation_keys(KeyTable& t) {
  t.group("memory");
  using A = Recipe::Activations;
  t.choice<A>(
      "activation_policy", &Recipe::activation_policy,
      {{A::keep, "keep", {}},
       {A::recompute, "recompute", {}},
       {A::offload, "offload", {}},
       {A::automatic, "auto", {}}},
      "What backward needs of the forward: kept in memory, made again (recompute), or waiting in a file "
      "(offload: blocks' inputs, from which the rest is made again, or with recompute: selective all but "
      "what a pass over memory makes again), or whichever is the cheapest within activation_memory (auto). "
      "Results are the same bits.");
  t.boolean("gradient_checkpointing", &Recipe::gradient_checkpointing,
            "true: activation_policy recompute, unless that says otherwise.");
  t.boolean("activation_offloading", &Recipe::activation_offloading, "true: activation_policy offload.");
  Key& memory = t.text("activation_memory", &Recipe::activation_memory,
                       "With activation_policy: auto, the most that activations may take: 2GiB, 800MB.");
  memory.set = [set = memory.set](Recipe& recipe, const YamlNode& node) {
    set(recipe, node);
    if (!recipe.activation_memory.empty()) parse_bytes(recipe.activation_memory);
  };
  add_recompute_keys(t);
  t.text("offload_dir", &Recipe::offload_dir,
         "Folder of the file that activation_policy: offload uses; the file has no name and is gone when the "
         "run ends. Empty: output_dir.");
  t.boolean("checkpoint.double_buffer", &Recipe::double_buffer,
            "What is offloaded is read one block ahead, into a second buffer.")
      .alias("training.checkpoint.double_buffer", kNested);
  t.boolean("checkpoint.synchronous", &Recipe::offload_synchronous,
            "What is offloaded is written and read by the computation itself, for comparison.");
  t.boolean(
       "metadata_cache", &Recipe::metadata_cache,
       "All layers share the segments of a micro-batch. false: each run of a layer builds them again, to "
       "measure what sharing saves.")
      .alias("training.metadata_cache", kNested);
  using G = Recipe::Graph;
  t.choice<G>(
      "graph", &Recipe::graph, {{G::dynamic, "dynamic", {}}, {G::captured, "captured", {}}},
      "captured: the memory of a micro-step is planned from the first one with its number of tokens and "
      "replayed: nothing is allocated any more. Results are the same bits, and the peak is no higher.");
}

bool is_activation_option(const std::string& key) {
  static const std::string kOptions[] = {"activation_memory",     "recompute",   "recompute_interval",
                                         "recompute_modules",     "offload_dir", "checkpoint.double_buffer",
                                         "checkpoint.synchronous"};
  return std::ranges::find(kOptions, key) != std::end(kOptions);
}

}  // namespace lode
