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

  void forward(Context& context, ConstView projector, ConstView full, View low) const;
  void back(Context& context, ConstView projector, ConstView low, View full) const;
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

// Normal random numbers of deviation 1 / sqrt(projector.rows).
void fill_random_projector(Context& context, PhiloxKey key, View projector);

}  // namespace lode
