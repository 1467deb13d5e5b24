// Causal attention over the segments of a packed stream, without the T x T matrix (Dao 2023, arXiv
// 2307.08691).
//   s = scale * q k^T within a segment and for keys not after the query; p = softmax(s); o = p v
// With a window W the query at position i sees the W keys (i - W, i] only.
// Query head h uses key/value head h / (heads / kv_heads). Slots keyed by the dtype of q, k, v, o (f32,
// bf16). Results do not depend on the number of threads, nor on what else is in the stream.
#pragma once

#include "kernels/kernel.h"
#include "kernels/segments.h"

namespace lode {

struct AttentionShape {
  std::int64_t heads, kv_heads, head_dim;
  float scale;
  std::int64_t window = 0;  // keys a query sees, its own included; 0: all
};

struct AttentionForward {
  AttentionShape shape;
  ConstView q;     // [T, heads * head_dim]; q, k and v may be column slices of one matrix
  ConstView k, v;  // [T, kv_heads * head_dim]
  const Segments* segments;
  View o;    // [T, heads * head_dim]; rows of padding are set to 0
  View lse;  // [heads, T] f32: log of the softmax's denominator
};

struct AttentionBackward {
  AttentionShape shape;
  ConstView q, k, v, o, lse, dout;
  const Segments* segments;
  View dq, dk, dv;  // overwritten; may be column slices of one matrix; rows of padding are set to 0
};

// New tokens against cached keys and values: row i of q, at position cache_length - T + i, sees keys up to
// that position, the window's only.
struct AttentionDecode {
  AttentionShape shape;
  ConstView q;     // [T, heads * head_dim]
  ConstView k, v;  // [cache_length, kv_heads * head_dim]
  View o;          // [T, heads * head_dim]
};

extern KernelSlot<void(const AttentionForward&)> attention_forward;
extern KernelSlot<void(const AttentionBackward&)> attention_backward;
extern KernelSlot<void(const AttentionDecode&)> attention_decode;

}  // namespace lode
