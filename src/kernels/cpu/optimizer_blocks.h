// How the elementwise passes of optimizers walk their matrices.
#pragma once

#include "kernels/cpu/ranges.h"
#include "kernels/optimizer.h"

namespace lode {

// A view that is not there does not decide how the others are cut.
inline ConstView or_other(ConstView view, ConstView other) {
  return view.data == nullptr ? other : view;
}

// Of weights and two or three matrices of their shape.
inline Blocks blocks_of(const UpdatedWeights& weight, const std::array<ConstView, 3>& others) {
  const ConstView all = weight.values;
  return {all,
          or_other(weight.copy, all),
          or_other(weight.compensation, all),
          or_other(others[0], all),
          or_other(others[1], all),
          or_other(others[2], all)};
}

// body(block) for each, on the context's threads.
template <class Body>
void for_blocks(const KernelContext& context, const Blocks& blocks, Body body) {
  blocks.for_each(context, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(blocks[i]);
  });
}

}  // namespace lode
