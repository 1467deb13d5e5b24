// The part of a recipe that chooses what is kept between forward and backward.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lode {

struct ActivationRecipe {
  enum class Activations { keep, recompute, offload, automatic };
  enum class RecomputeKind { full, selective, every_k };
  enum class Graph { dynamic, captured };

  Activations activation_policy = Activations::keep;
  bool gradient_checkpointing = false;  // Hugging Face's word for recompute
  bool activation_offloading = false;   // axolotl's for offload
  RecomputeKind recompute = RecomputeKind::full;
  std::int64_t recompute_interval = 2;                           // every_k: this k
  std::vector<std::string> recompute_modules = {"norm", "mlp"};  // selective: norm, mlp, attention
  std::string offload_dir;                                       // "": output_dir
  std::string activation_memory;                                 // automatic: at most so many bytes, "2GiB"
  bool metadata_cache = true;
  Graph graph = Graph::dynamic;
  bool double_buffer = true;
  bool offload_synchronous = false;
};

}  // namespace lode
