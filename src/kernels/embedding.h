// Table look-up. Slots keyed by the dtype of the activations y / dy.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kernel.h"

namespace lode {

// y[t] = scale * table[ids[t]] (+ y[t] when add). table [V, D] is f32 or bf16, y [T, D]. Ids are in range
// (checked by the op).
extern KernelSlot<void(std::span<const std::int32_t> ids, ConstView table, float scale, bool add, View y)>
    embedding_forward;

// dtable[id] += scale * sum over t with ids[t] == id of dy[t], in increasing t: the same for any number of
// threads. dtable [V, D] is f32.
extern KernelSlot<void(std::span<const std::int32_t> ids, ConstView dy, float scale, View dtable)>
    embedding_backward;

}  // namespace lode
