// Residual addition fused with RMSNorm or LayerNorm: h = x + delta; y = norm(h). Formulas in kernels/norm.h.
// Backward: dh = dnorm(dy) + (gradient reaching h otherwise); dx = ddelta = dh; dweight and dbias are added
// to their sinks. Unfused it is add_rows followed by norm without delta, which the tests compare with.
#pragma once

#include "autograd/tape.h"
#include "autograd/weight.h"
#include "kernels/norm.h"

namespace lode {

struct NormParameters {
  NormKind kind = NormKind::rms;
  float eps = 1e-5f;
  Weight* weight = nullptr;
  Weight* bias = nullptr;  // LayerNorm only
  float offset = 0;        // added to the weight: 1 where files hold weights centred on zero
};

struct AddNorm {
  Value h;  // x itself when there is no delta
  Value y;
};

// delta: nullptr for a plain norm of x. policy: of y.
AddNorm add_norm(Context& context, const Value& x, const Value* delta, const NormParameters& parameters,
                 SavePolicy policy = SavePolicy::keep);

// h = x + delta alone.
Value add(Context& context, const Value& x, const Value& delta);

// RMSNorm of every query and key head of a fused projection by itself, in place (its producer needs its
// output no more): x [T, >= (heads + kv_heads) * E], the weights [1, E] shared by the heads; the columns
// behind stay. Consumes x: its data is changed.
Value norm_heads(Context& context, Value x, std::int64_t heads, std::int64_t kv_heads,
                 const NormParameters& queries, const NormParameters& keys);

}  // namespace lode
