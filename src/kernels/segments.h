// The boundaries of samples in a packed token stream. Built once per micro-batch, shared by every layer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lode {

// One sample (or the padding) in the stream.
struct Segment {
  std::int32_t begin = 0, length = 0;  // tokens [begin, begin + length)
  std::int64_t sample = 0;             // global sample id, the same for any packing and split
  bool padding = false;                // the unlabelled tail that rounds the stream up
};

class Segments {
 public:
  Segments() = default;
  // `lengths` and `samples` in stream order; a tail of padding fills up to num_tokens. Lengths are positive.
  // first_positions: position of each segment's first token; empty = all 0 (a decoding continuation has
  // others).
  Segments(std::span<const std::int32_t> lengths, std::span<const std::int64_t> samples,
           std::int32_t num_tokens, std::span<const std::int32_t> first_positions = {});

  std::int32_t num_tokens() const { return num_tokens_; }
  std::span<const Segment> list() const { return segments_; }
  std::span<const std::int32_t> positions() const {
    return positions_;
  }  // [T], restart at each segment; padding: 0
  std::span<const std::int32_t> segment_of() const { return segment_of_; }  // [T], index into list()
  std::int32_t longest() const { return longest_; }                         // padding not counted
  // Tells objects built from lengths apart, also when one takes the address of another; copies share it.
  std::uint64_t generation() const { return generation_; }

  // The same built again, generation included: what a stream costs that is not shared by the layers.
  Segments rebuilt() const;

 private:
  void append(Segment segment, std::int32_t first_position);

  std::vector<Segment> segments_;
  std::vector<std::int32_t> positions_, segment_of_;
  std::int32_t num_tokens_ = 0, longest_ = 0;
  std::uint64_t generation_ = 0;
};

}  // namespace lode
