// Inverted dropout. The mask is a function of (seed, step, site, sample id, position, channel); backward
// makes it again.
#pragma once

#include <string_view>

#include "autograd/tape.h"
#include "ops/batch.h"

namespace lode {

// p = 0, or a context that is not training: x itself. `site` names the place in the model. The batch must
// live until backward has run.
Value dropout(Context& context, const Value& x, const Batch& batch, float p, std::string_view site);

}  // namespace lode
