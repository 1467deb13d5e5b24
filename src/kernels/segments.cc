#include "kernels/segments.h"

#include <algorithm>
#include <atomic>

#include "core/fail.h"

namespace lode {
namespace {

std::uint64_t next_generation() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace

void Segments::append(Segment segment, std::int32_t first_position) {
  const auto index = static_cast<std::int32_t>(segments_.size());
  for (std::int32_t i = 0; i < segment.length; ++i) {
    // Padding stays at 0: it may be longer than a model has positions.
    positions_.push_back(segment.padding ? 0 : first_position + i);
    segment_of_.push_back(index);
  }
  if (!segment.padding) longest_ = std::max(longest_, segment.length);
  segments_.push_back(segment);
}

Segments Segments::rebuilt() const {
  Segments again;
  again.num_tokens_ = num_tokens_;
  again.generation_ = generation_;
  again.positions_.reserve(positions_.size());
  again.segment_of_.reserve(segment_of_.size());
  for (const Segment& segment : segments_)
    again.append(segment, positions_[static_cast<std::size_t>(segment.begin)]);
  return again;
}

Segments::Segments(std::span<const std::int32_t> lengths, std::span<const std::int64_t> samples,
                   std::int32_t num_tokens, std::span<const std::int32_t> first_positions)
    : num_tokens_(num_tokens), generation_(next_generation()) {
  LODE_ASSERT(lengths.size() == samples.size());
  LODE_ASSERT(first_positions.empty() || first_positions.size() == lengths.size());
  positions_.reserve(static_cast<std::size_t>(num_tokens));
  segment_of_.reserve(static_cast<std::size_t>(num_tokens));
  std::int32_t begin = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    LODE_ASSERT(lengths[i] > 0 && lengths[i] <= num_tokens - begin);
    append({begin, lengths[i], samples[i], false}, first_positions.empty() ? 0 : first_positions[i]);
    begin += lengths[i];
  }
  if (begin < num_tokens) append({begin, num_tokens - begin, -1, true}, 0);
}

}  // namespace lode
