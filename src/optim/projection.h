// Which side of a matrix a low-rank optimizer projects, and projecting there and back. A projector P is
// [rank, side] with rows of the projected space: R = G P^T on the right, P G on the left.
#pragma once

#include "core/rng.h"
#include "optim/optimizers.h"
#include "optim/state.h"

namespace lode {

struct Projection {
  bool right;
  std::int64_t rank, side;  // rank <= min(rows, cols)
  std::int64_t low_rows, low_cols;

  Projection(const Parameter& parameter, ProjectedSide where, std::int64_t rank);

  // The products, for multiply() or multiply_in_run_precision().
  MatMul forward(ConstView projector, ConstView full, View low) const;
  MatMul back(ConstView projector, ConstView low, View full) const;
};

// projector <- the leading singular vectors of g, largest first, the entry of largest magnitude of each
// positive. exact: by an eigenvalue decomposition in f64. Else by subspace iteration from what `projector`
// holds (warm) or from random numbers of `key`, in f32 products; small matrices and high ranks are exact
// anyway.
struct SubspaceOptions {
  bool exact = false, warm = false;
  PhiloxKey key{};
};
void find_subspace(Context& context, ConstView g, const Projection& projection,
                   const SubspaceOptions& options, View projector);

// What GaLore and APOLLO share: AdamW on the target matrices in a projected space, another optimizer for
// everything else.
class LowRankOptimizer : public Optimizer {
 public:
  struct Choice {
    std::vector<std::string> targets;
    ProjectedSide side;
    std::int64_t rank;
  };
  LowRankOptimizer(Choice choice, std::unique_ptr<Optimizer> rest)
      : choice_(std::move(choice)), rest_(std::move(rest)) {}

  std::vector<std::string> state_names(const Parameter& parameter) const final;
  std::vector<Tensor> init_one(Context& context, const Parameter& parameter) const final;
  void step_one(Context& context, const Parameter& parameter, std::vector<Tensor>& state,
                const StepArguments& arguments) const final;

 protected:
  // Of a target.
  virtual std::vector<std::string> low_rank_names() const = 0;
  virtual std::vector<Tensor> init_low_rank(Context& context, const Projection& projection) const = 0;
  virtual void step_low_rank(Context& context, const Parameter& parameter, const Projection& projection,
                             std::vector<Tensor>& state, const StepArguments& arguments) const = 0;
  // Adam's bias corrections as a factor on the rate: lr sqrt(1 - b2^t) / (1 - b1^t).
  static double corrected_rate(const AdamWOptions& adamw, const StepArguments& arguments);
  // low <- m / (sqrt(v) + eps) with the moments state[0] and state[1].
  static void adam_direction_of(Context& context, const AdamWOptions& adamw, Tensor& low,
                                std::vector<Tensor>& state, const StepArguments& arguments);

 private:
  Choice choice_;
  std::unique_ptr<Optimizer> rest_;
};

// Normal random numbers of deviation 1 / sqrt(projector.rows).
void fill_random_projector(Context& context, PhiloxKey key, View projector);

}  // namespace lode
