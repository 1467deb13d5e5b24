// How the elementwise passes of optimizers walk their matrices.
#pragma once

#include "kernels/cpu/ranges.h"

namespace lode {

// A view that is not there does not decide how the others are cut.
inline ConstView or_other(ConstView view, ConstView other) {
  return view.data == nullptr ? other : view;
}

// body(block) for each, on the context's threads.
template <class Body>
void for_blocks(const KernelContext& context, const Blocks& blocks, Body body) {
  blocks.for_each(context, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(blocks[i]);
  });
}

}  // namespace lode
