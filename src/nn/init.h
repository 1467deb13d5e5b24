// Random values as initial weights have them.
#pragma once

#include "autograd/context.h"
#include "core/rng.h"

namespace lode {

// Normal values of mean 0, a function of the key alone; f32, contiguous.
void fill_normal(Context& context, View values, PhiloxKey key, float deviation);

}  // namespace lode
