// The optimizers' options, one struct each, and how they are made. Defaults are the reference packages' where
// nothing else is said; the learning rate comes with each step. An optimizer of matrices gives the parameters
// that it does not take to AdamW. Weight decay never touches parameters whose `decay` is false.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "optim/optimizer.h"

namespace lode {

// bitsandbytes' AdamW8bit: AdamW with block-wise 8-bit moments, in f32 for parameters of fewer elements.
struct AdamW8bitOptions {
  AdamWOptions adamw;
  std::int64_t min_8bit_size = 4096;
};

// torch.optim.SGD; the decay is L2, added to the gradient.
struct SgdOptions {
  double momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;  // needs momentum and no dampening
};

struct LionOptions {
  double beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
};

// Lion with a block-wise 8-bit moment, in f32 for parameters of fewer elements.
struct Lion8bitOptions {
  LionOptions lion;
  std::int64_t min_8bit_size = 4096;
};

// transformers' Adafactor (Shazeer and Stern 2018, arXiv 1804.04235), with the defaults that its trainer
// sets.
struct AdafactorOptions {
  double eps1 = 1e-30, eps2 = 1e-3, clip_threshold = 1, decay_rate = -0.8;
  double beta1 = 0;  // 0: no first moment
  double weight_decay = 0;
  bool scale_parameter = false;  // the rate is times the weights' root mean square
  bool relative_step = false;    // the rate is 1 / sqrt(t), not the schedule's
  bool warmup_init = false;      // with relative_step: rises from 1e-6
};

// Adam-mini (Zhang et al. 2024, arXiv 2406.16793): one second moment for each head of q and k, each row of
// other matrices, and each norm; biases keep theirs per element.
struct AdamMiniOptions {
  AdamWOptions adamw;
  std::int64_t head_size = 0;  // rows of a head in q_proj and k_proj; 0: a row each
};

enum class MuonScale {
  original,   // sqrt(max(1, rows / cols)): Keller Jordan's
  match_rms,  // 0.2 sqrt(max(rows, cols)): Moonlight's, so that AdamW's learning rate fits
  spectral,   // sqrt(rows / cols)
};

// Muon (Jordan et al. 2024; Moonlight: arXiv 2502.16982) on the matrices of linear modules.
struct MuonOptions {
  AdamWOptions adamw;  // of the others; its weight_decay is Muon's too
  double momentum = 0.95, eps = 1e-7;
  int steps = 5;  // of the Newton-Schulz iteration
  bool nesterov = true;
  MuonScale scale = MuonScale::match_rms;
};

enum class ProjectedSide {
  standard,          // the smaller dimension is projected
  reverse_standard,  // the larger one
  right,             // the columns
  left,              // the rows
};

// GaLore (Zhao et al. 2024, arXiv 2403.03507): AdamW on gradients projected to their leading singular
// vectors.
struct GaloreOptions {
  AdamWOptions adamw;
  std::vector<std::string> targets{"all"};  // modules, as names_module matches them; "all": every linear one
  std::int64_t rank = 128, update_interval = 200;
  double scale = 0.25;
  ProjectedSide side = ProjectedSide::standard;
  bool state_8bit = false;
  bool exact_svd = false;  // else subspace iteration, from the last projector on
};

enum class ApolloScale { channel, tensor };

// APOLLO (Zhu et al. 2024, arXiv 2412.05270): the gradient itself, each channel (or the tensor) scaled as
// AdamW would in a random projection. APOLLO-Mini: rank 1, tensor, scale 128.
struct ApolloOptions {
  AdamWOptions adamw;
  std::vector<std::string> targets{"all"};
  std::int64_t rank = 256, update_interval = 200;
  double scale = 1;
  ApolloScale scale_type = ApolloScale::channel;
  ProjectedSide side = ProjectedSide::standard;  // standard, right or left
  bool scale_front = false;                      // the scale is applied before the norm-growth limiter
  bool limit_growth = true;
  // Fills the projector [rank, side] of a parameter after `refresh` updates of it; unset: normal random
  // numbers of deviation 1 / sqrt(rank), of the key (seed, name, refresh).
  std::function<void(const std::string& name, std::int64_t refresh, View projector)> draw;
  std::uint64_t seed = 0;
};

enum class BlockOrder { ascending, descending, random, fixed };

// BAdam (Luo et al. 2024, arXiv 2404.02827): AdamW on one layer at a time, with state and gradient for it
// alone.
struct BadamOptions {
  AdamWOptions adamw;
  BlockOrder order = BlockOrder::descending;
  std::int64_t switch_interval = 50;  // steps of a block
  std::int64_t start_block = -1;      // of ascending, descending and fixed; -1: the first of the order
  std::uint64_t seed = 0;             // of random
};

using OptimizerOptions =
    std::variant<AdamWOptions, AdamW8bitOptions, SgdOptions, LionOptions, Lion8bitOptions, AdafactorOptions,
                 AdamMiniOptions, MuonOptions, GaloreOptions, ApolloOptions, BadamOptions>;

std::unique_ptr<Optimizer> make_adamw_8bit(const AdamW8bitOptions& options);
std::unique_ptr<Optimizer> make_sgd(const SgdOptions& options);
std::unique_ptr<Optimizer> make_lion(const LionOptions& options);
std::unique_ptr<Optimizer> make_lion_8bit(const Lion8bitOptions& options);
std::unique_ptr<Optimizer> make_adafactor(const AdafactorOptions& options);
std::unique_ptr<Optimizer> make_adam_mini(const AdamMiniOptions& options);
std::unique_ptr<Optimizer> make_muon(const MuonOptions& options);
std::unique_ptr<Optimizer> make_galore(const GaloreOptions& options);
std::unique_ptr<Optimizer> make_apollo(const ApolloOptions& options);
std::unique_ptr<Optimizer> make_badam(const BadamOptions& options);

// Throws Error(usage) for options that contradict each other.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);

}  // namespace lode
