// A micro-batch: one packed token stream. There is no batch dimension anywhere.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/segments.h"

namespace lode {

inline constexpr std::int32_t kIgnoreLabel = -100;
inline constexpr std::int32_t kTokenMultiple = 128;  // a stream is rounded up to a multiple of this

// labels[t] is the token that position t is to predict (already shifted within its sample), or kIgnoreLabel.
// loss_weight[t] is 0 where there is no label. The segments belong to the batch: layers are handed the batch,
// so that tokens and boundaries cannot come from different streams.
class Batch {
 public:
  Batch(std::vector<std::int32_t> tokens, std::vector<std::int32_t> labels, std::vector<float> loss_weight,
        Segments segments);

  std::int32_t num_tokens() const { return segments_.num_tokens(); }
  const std::vector<std::int32_t>& tokens() const { return tokens_; }
  const std::vector<std::int32_t>& labels() const { return labels_; }
  const std::vector<float>& loss_weight() const { return loss_weight_; }
  const Segments& segments() const {
    ++uses_;
    return segments_;
  }
  std::int64_t num_targets() const { return num_targets_; }  // labels that count
  // How often its segments were asked for, by ops of all layers, forward, recomputation and backward.
  std::int64_t segment_uses() const { return uses_; }
  // The same stream with segments built again.
  Batch rebuilt() const { return Batch(tokens_, labels_, loss_weight_, segments_.rebuilt()); }

 private:
  std::vector<std::int32_t> tokens_, labels_;
  std::vector<float> loss_weight_;
  Segments segments_;
  std::int64_t num_targets_ = 0;
  mutable std::int64_t uses_ = 0;  // one thread at a time uses a batch
};

}  // namespace lode
