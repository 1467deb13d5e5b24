#include "kernels/segments.h"

#include <algorithm>

#include "core/fail.h"

namespace lode {

Segments::Segments(std::span<const std::int32_t> lengths, std::span<const std::int64_t> samples,
                   std::int32_t num_tokens, std::span<const std::int32_t> first_positions)
    : num_tokens_(num_tokens) {
  LODE_ASSERT(lengths.size() == samples.size());
  LODE_ASSERT(first_positions.empty() || first_positions.size() == lengths.size());
  positions_.reserve(static_cast<std::size_t>(num_tokens));
  segment_of_.reserve(static_cast<std::size_t>(num_tokens));
  const auto add = [this](Segment segment, std::int32_t first_position) {
    const auto index = static_cast<std::int32_t>(segments_.size());
    for (std::int32_t i = 0; i < segment.length; ++i) {
      // Padding stays at 0: it may be longer than a model has positions.
      positions_.push_back(segment.padding ? 0 : first_position + i);
      segment_of_.push_back(index);
    }
    segments_.push_back(segment);
  };
  std::int32_t begin = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    LODE_ASSERT(lengths[i] > 0 && lengths[i] <= num_tokens - begin);
    add({begin, lengths[i], samples[i], false}, first_positions.empty() ? 0 : first_positions[i]);
    begin += lengths[i];
    longest_ = std::max(longest_, lengths[i]);
  }
  if (begin < num_tokens) add({begin, num_tokens - begin, -1, true}, 0);
}

}  // namespace lode
