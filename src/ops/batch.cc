#include "ops/batch.h"

#include <algorithm>

#include "core/fail.h"

namespace lode {

Batch::Batch(std::vector<std::int32_t> tokens, std::vector<std::int32_t> labels,
             std::vector<float> loss_weight, Segments segments)
    : tokens_(std::move(tokens)),
      labels_(std::move(labels)),
      loss_weight_(std::move(loss_weight)),
      segments_(std::move(segments)) {
  const auto length = static_cast<std::size_t>(segments_.num_tokens());
  LODE_ASSERT(tokens_.size() == length && labels_.size() == length && loss_weight_.size() == length);
  num_targets_ = std::ranges::count_if(labels_, [](std::int32_t label) { return label != kIgnoreLabel; });
}

}  // namespace lode
