// What the attention kernels share: the choice of tile kernels and the packed form of keys and values.
#pragma once

#include <span>

#include "kernels/attention.h"
#include "kernels/cpu/attention_tiles.h"

namespace lode {

inline constexpr std::int64_t kQueryTile = 64, kKeyTile = 256;
inline constexpr float kLog2E = 1.44269504f;

// The window in keys, of a size beyond any length when there is none.
inline std::int64_t window_of(const AttentionShape& shape) {
  return shape.window > 0 ? shape.window : std::int64_t{1} << 40;
}
// The first key that the query at `position` sees.
inline std::int64_t first_key(std::int64_t position, std::int64_t window) {
  return position < window ? 0 : position - window + 1;
}

// Queries [q_begin, q_begin + q_count) against keys [k_begin, k_begin + k_count): the last query sees the
// last key, and each query before it one key less.
struct AttentionSpan {
  std::int64_t q_begin, q_count, k_begin, k_count;
};

// The bf16 tiles where the operands are bf16 and matrix products use bf16 dot products, else the f32 tiles.
const TileKernels& choose_tiles(DType dtype);

inline std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Channels [head * head_dim, ...) of rows [begin, begin + count).
TileRows head_rows(ConstView x, std::int64_t begin, std::int64_t count, std::int64_t head,
                   std::int64_t head_dim);
TileOutput head_output(View x, std::int64_t begin, std::int64_t count, std::int64_t head,
                       std::int64_t head_dim);
void zero_rows(View x);

// A tile of products in which only part may be needed: key j of row r is needed when j < visible + r. Calls
// body(first row, rows, keys) for blocks of rows with the number of keys that any of them needs.
template <class Body>
void for_visible_blocks(std::int64_t rows, std::int64_t keys, std::int64_t visible, const Body& body) {
  if (visible >= keys) return body(0, rows, keys);
  constexpr std::int64_t kBlock = 12;
  for (std::int64_t r = 0; r < rows; r += kBlock) {
    const std::int64_t count = rows - r < kBlock ? rows - r : kBlock;
    const std::int64_t needed = visible + r + count - 1;
    body(r, count, needed < keys ? needed : keys);
  }
}

void attend_spans(KernelContext& context, const AttentionShape& shape, ConstView q, ConstView k, ConstView v,
                  std::span<const AttentionSpan> spans, View o, View lse);

}  // namespace lode
