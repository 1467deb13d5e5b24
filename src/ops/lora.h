// Low-rank additions: y[:, part] += z_part B_part^T for several parts of one product's output (q | k | v).
// Backward: dz_part = dy_part B_part; dB_part += dy_part^T z_part (added to their sinks). B [rows, rank].
#pragma once

#include <span>
#include <vector>

#include "autograd/tape.h"
#include "autograd/weight.h"
#include "ops/batch.h"

namespace lode {

struct LowRankPart {
  Weight* b = nullptr;      // [rows, rank]
  std::int64_t begin = 0;   // first column in y
  std::int64_t offset = 0;  // first column in z
};

// y is changed in place: it must be fresh, its op must not need its values in backward, and that op's nodes
// were the last to be recorded with it. z [T, sum of ranks].
Value add_low_rank(Context& context, Value y, const Value& z, const std::vector<LowRankPart>& parts);

// z[:, begin .. begin + count) *= scale for each part, in place under the same condition.
struct ScaledPart {
  std::int64_t begin, count;
  float scale;
};
Value scale_parts(Context& context, Value z, std::vector<ScaledPart> parts);

// y += noise in [-m, m), m = alpha / sqrt(L d), L the length of a token's sample (NEFTune, Jain et al. 2023,
// arXiv 2310.05914); a function of (seed, step, sample id, position, channel). In place; gradients pass as
// they are. Does nothing when not training or alpha is 0.
void add_embedding_noise(Context& context, Value& y, const Batch& batch, float alpha);

}  // namespace lode
