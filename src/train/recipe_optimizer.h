// The part of a recipe that chooses the optimizer; names and defaults are LLaMA-Factory's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lode {

struct OptimizerRecipe {
  enum class Side { std, reverse_std, right, left };
  enum class ApolloScaling { channel, tensor };
  enum class Switching { ascending, descending, random, fixed };

  std::string optim = "adamw_torch";
  std::string optim_args;                         // "name=value,name=value" of the optimizer
  std::vector<std::string> optim_target_modules;  // of galore_adamw and apollo_adamw; empty: every linear one

  bool use_galore = false;
  std::vector<std::string> galore_target = {"all"};
  std::int64_t galore_rank = 16, galore_update_interval = 200;
  double galore_scale = 2;
  Side galore_proj_type = Side::std;

  bool use_apollo = false;
  std::vector<std::string> apollo_target = {"all"};
  std::int64_t apollo_rank = 16, apollo_update_interval = 200;
  double apollo_scale = 32;
  std::string apollo_proj = "random";
  Side apollo_proj_type = Side::std;
  ApolloScaling apollo_scale_type = ApolloScaling::channel;
  bool apollo_scale_front = false;

  bool use_badam = false;
  std::string badam_mode = "layer";
  std::optional<std::int64_t> badam_start_block;
  Switching badam_switch_mode = Switching::ascending;
  std::int64_t badam_switch_interval = 50;

  bool use_adam_mini = false, use_muon = false;

  bool optim_in_backward = false;
  std::string optim_offload_dir;  // empty: state in memory
};

}  // namespace lode
