// Keys of the optimizers.
#include "train/keys_build.h"

namespace lode {
namespace {

using Side = Recipe::Side;

void add_galore_keys(KeyTable& t) {
  t.boolean(
      "use_galore", &Recipe::use_galore,
      "GaLore: AdamW on gradients projected to their leading directions; with optim: adamw_8bit in 8-bit "
      "state. Needs finetuning_type full or freeze.");
  t.list(
      "galore_target", &Recipe::galore_target,
      "Modules whose gradients are projected, by the last parts of their names; all: every linear module.");
  t.integer("galore_rank", &Recipe::galore_rank, kAtLeast1, "Rank of the projection.");
  t.integer("galore_update_interval", &Recipe::galore_update_interval, kAtLeast1,
            "Steps between new projections.")
      .alias("galore_update_proj_gap", kSwift);
  t.number("galore_scale", &Recipe::galore_scale, kAbove0, "Factor on the projected-back update.");
  refuse_choices(t.choice<Side>("galore_proj_type", &Recipe::galore_proj_type,
                                {{Side::std, "std", {}},
                                 {Side::reverse_std, "reverse_std", {}},
                                 {Side::right, "right", {}},
                                 {Side::left, "left", {}}},
                                "Which side is projected: the smaller (std), the larger, columns or rows."),
                 {"full"});
  t.not_yet("galore_layerwise");
  t.not_yet("galore_quantization");
}

void add_apollo_keys(KeyTable& t) {
  t.boolean("use_apollo", &Recipe::use_apollo,
            "APOLLO: the gradient scaled per channel as AdamW would in a random projection. Needs "
            "finetuning_type full or freeze.");
  t.list("apollo_target", &Recipe::apollo_target,
         "Modules whose gradients are scaled, by the last parts of their names; all: every linear module.");
  t.integer("apollo_rank", &Recipe::apollo_rank, kAtLeast1, "Rank of the projection (APOLLO-Mini: 1).");
  t.integer("apollo_update_interval", &Recipe::apollo_update_interval, kAtLeast1,
            "Steps between new projections.")
      .alias("apollo_update_proj_gap", kSwift);
  t.number("apollo_scale", &Recipe::apollo_scale, kAbove0,
           "The update is times the square root of this (APOLLO-Mini: 128).");
  t.text_choice("apollo_proj", &Recipe::apollo_proj, {{"random", "random", {}}}, {"svd"},
                "How the projection is made.");
  refuse_choices(
      t.choice<Side>("apollo_proj_type", &Recipe::apollo_proj_type,
                     {{Side::std, "std", {}}, {Side::right, "right", {}}, {Side::left, "left", {}}},
                     "Which side is projected: the smaller (std), columns or rows."),
      {"full"});
  using S = Recipe::ApolloScaling;
  t.choice<S>("apollo_scale_type", &Recipe::apollo_scale_type,
              {{S::channel, "channel", {}}, {S::tensor, "tensor", {}}},
              "One factor a channel, or one a matrix (APOLLO-Mini).");
  t.boolean("apollo_scale_front", &Recipe::apollo_scale_front,
            "Apply the scale before the limit on the update's growth.");
  t.not_yet("apollo_layerwise");
}

void add_badam_keys(KeyTable& t) {
  t.boolean("use_badam", &Recipe::use_badam,
            "BAdam: AdamW on one layer at a time; gradients and state exist for that layer alone. Needs "
            "finetuning_type full or freeze.");
  t.text_choice("badam_mode", &Recipe::badam_mode, {{"layer", "layer", {}}}, {"ratio"}, "What a block is.");
  t.integer("badam_start_block", &Recipe::badam_start_block, kAtLeast0,
            "The first layer. Empty: the first of the order.");
  using S = Recipe::Switching;
  t.choice<S>("badam_switch_mode", &Recipe::badam_switch_mode,
              {{S::ascending, "ascending", {}},
               {S::descending, "descending", {}},
               {S::random, "random", {}},
               {S::fixed, "fixed", {}}},
              "The order of the layers; fixed: only the first is trained.");
  t.integer("badam_switch_interval", &Recipe::badam_switch_interval, kAtLeast1, "Steps of a layer.");
  t.no_effect("badam_verbose", "what is trained is always said");
  t.not_yet("badam_update_ratio", {"0.05"});
  t.not_yet("badam_mask_mode", {"adjacent"});
}

}  // namespace

void add_optimizer_choice_keys(KeyTable& t) {
  t.text_choice(
       "optim", &Recipe::optim,
       {{"adamw_torch",
         "adamw_torch",
         {"adamw", "adamw_torch_fused", "adamw_hf", "adam", "paged_adamw", "paged_adamw_32bit"}},
        {"adamw_8bit", "adamw_8bit", {"adamw_bnb_8bit", "paged_adamw_8bit"}},
        {"adafactor", "adafactor", {}},
        {"lion_32bit", "lion_32bit", {"lion", "paged_lion", "paged_lion_32bit"}},
        {"lion_8bit", "lion_8bit", {"paged_lion_8bit"}},
        {"sgd", "sgd", {}},
        {"adam_mini", "adam_mini", {}},
        {"muon", "muon", {}},
        {"galore_adamw", "galore_adamw", {}},
        {"galore_adamw_8bit", "galore_adamw_8bit", {}},
        {"apollo_adamw", "apollo_adamw", {}}},
       {"galore_adafactor", "galore_adamw_layerwise", "apollo_adamw_layerwise", "lomo", "adalomo",
        "grokadamw", "schedule_free_adamw", "schedule_free_sgd", "adagrad", "rmsprop"},
       "The optimizer: adamw_torch is AdamW with decoupled weight decay; adamw_8bit keeps its moments in 8 "
       "bits; the others are described with their sources in docs/optimizers.md.")
      .alias("optimizer", kMegatron);
  t.text(
      "optim_args", &Recipe::optim_args,
      "Options of the optimizer, name=value separated by commas: momentum, dampening, nesterov (sgd); "
      "scale_parameter, relative_step, warmup_init, clip_threshold, decay_rate, beta1 (adafactor); momentum, "
      "nesterov, ns_steps, adjust_lr_fn (muon); min_8bit_size (adamw_8bit, lion_8bit); rank, "
      "update_proj_gap, scale, "
      "proj_type (galore_adamw), scale_type (apollo_adamw).");
  t.list(
      "optim_target_modules", &Recipe::optim_target_modules,
      "With optim: galore_* or apollo_*: modules whose gradients are projected. Empty: every linear module.");
  t.boolean("use_adam_mini", &Recipe::use_adam_mini,
            "Adam-mini: one second moment for each head, row or norm.");
  t.boolean("use_muon", &Recipe::use_muon,
            "Muon with Moonlight's scale for the matrices of linear modules, AdamW for the others.");
  t.boolean("optim_in_backward", &Recipe::optim_in_backward,
            "Update each parameter within backward, as soon as its gradient is final, and free the gradient. "
            "Needs max_grad_norm: 0 (the norm of all gradients is not known yet) and "
            "gradient_accumulation_steps: 1.");
  t.text(
      "optim_offload_dir", &Recipe::optim_offload_dir,
      "An existing folder for the optimizer's state: it lies in a file there, is read one parameter ahead of "
      "the update and written behind it. Empty: state in memory.");
  add_galore_keys(t);
  add_apollo_keys(t);
  add_badam_keys(t);
}

bool is_optimizer_option(const std::string& key) {
  return key.starts_with("galore_") || key.starts_with("apollo_") || key.starts_with("badam_") ||
         key == "optim_args" || key == "optim_target_modules";
}

}  // namespace lode
