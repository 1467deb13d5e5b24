// Causal self-attention of a fused projection qkv [T, (heads + 2 kv_heads) * head_dim], columns q | k | v; o
// [T, heads * head_dim]. Formulas in kernels/attention.h. Backward recomputes the probabilities tile by tile;
// dqkv is a new gradient.
#pragma once

#include <functional>

#include "autograd/tape.h"
#include "kernels/attention.h"
#include "ops/batch.h"
#include "ops/kv_cache.h"

namespace lode {

// The batch must live until backward has run. With a cache the batch is one segment that continues the cached
// sequence of this layer, and nothing is recorded. policy: of o;
// recomputed, if any, is called when it has been made again.
Value attention(Context& context, const Value& qkv, const Batch& batch, const AttentionShape& shape,
                KvCache* cache = nullptr, std::int64_t layer = 0, SavePolicy policy = SavePolicy::keep,
                std::function<void(double flops)> recomputed = {});

// Forward multiply-adds count 2: 2 products of half a square, per segment, less the half square beyond the
// window. What utilisation is computed from.
double attention_forward_flops(const Segments& segments, const AttentionShape& shape);

}  // namespace lode
