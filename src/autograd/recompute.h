// Recomputation of a whole stretch of a model (Chen et al. 2016, arXiv 1604.06174): what its ops save is
// dropped after the forward; backward runs it again from its input on a tape of its own and goes back through
// that.
#pragma once

#include <functional>
#include <vector>

#include "autograd/tape.h"

namespace lode {

// A pure function of its input, of weights and of what it captured: the same ops in the same order each time.
using Stretch = std::function<std::vector<Value>(Context&, const Value& input)>;
// Says where the input waits for the backward.
using SaveInput = std::function<Saved(const Tensor& input)>;

// The stretch's outputs. Losses and gradients are those of calling it directly, to the bit. What the stretch
// captured must live until backward has run. `recomputed` is called each time that it has run again.
std::vector<Value> recompute_later(Context& context, Stretch stretch, const Value& input,
                                   const SaveInput& save, std::function<void()> recomputed);

}  // namespace lode
