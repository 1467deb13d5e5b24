// Forward: packed keys and values, then query tiles with an online softmax over key tiles from the diagonal
// backwards.
#include "kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "kernels/cpu/attention_plan.h"
#include "kernels/matmul.h"

namespace lode {

const TileKernels& choose_tiles(DType dtype) {
  static const bool native = bf16_matmul_path().native_bf16 && bf16_tiles() != nullptr;
  return dtype == DType::bf16 && native ? *bf16_tiles() : f32_tiles();
}

TileRows head_rows(ConstView x, std::int64_t begin, std::int64_t count, std::int64_t head,
                   std::int64_t head_dim) {
  const bool is_bf16 = x.dtype == DType::bf16;
  const std::int64_t first = begin * x.stride + head * head_dim;
  const void* data = is_bf16 ? static_cast<const void*>(static_cast<const bf16*>(x.data) + first)
                             : static_cast<const void*>(static_cast<const float*>(x.data) + first);
  return {data, is_bf16, x.stride, count, head_dim};
}

TileOutput head_output(View x, std::int64_t begin, std::int64_t count, std::int64_t head,
                       std::int64_t head_dim) {
  const TileRows rows = head_rows(x, begin, count, head, head_dim);
  return {const_cast<void*>(rows.data), rows.is_bf16, rows.stride, rows.rows, rows.cols};
}

void zero_rows(View x) {
  for (std::int64_t r = 0; r < x.rows; ++r) {
    if (x.dtype == DType::f32) {
      std::fill_n(x.row<float>(r), x.cols, 0.0f);
    } else {
      std::fill_n(x.row<bf16>(r), x.cols, bf16{0});
    }
  }
}

namespace {

// Keys [first, first + count) of a span, one piece of packing.
struct KeyTile {
  std::int64_t span, first, count;
  std::int64_t packed;  // rows of packed keys before it, a multiple of kTileLanes
};

struct QueryTile {
  std::int64_t span, kv_head, first, rows, keys;
  std::int64_t position() const { return keys - rows; }  // of the first row
};

struct Scratch {
  Cell *q, *p;
  float *s, *o, *max, *sum;
};

class Forward {
 public:
  Forward(KernelContext& context, const AttentionShape& shape, ConstView q, ConstView k, ConstView v,
          std::span<const AttentionSpan> spans, View o, View lse)
      : context_(context),
        workspace_(*context.workspace),
        shape_(shape),
        q_(q),
        k_(k),
        v_(v),
        o_(o),
        lse_(lse),
        spans_(spans),
        tiles_(choose_tiles(q.dtype)),
        window_(window_of(shape)),
        width_(round_up(shape.head_dim, kTileLanes)),
        cells_(width_ / tiles_.pair) {}

  void run() {
    pack_keys();
    list_queries();
    const auto threads = static_cast<std::int64_t>(std::max(1, context_.threads));
    Scratch* scratch = workspace_.take<Scratch>(threads);
    for (std::int64_t i = 0; i < threads; ++i) scratch[i] = take_scratch();
    parallel_tasks(context_.threads, num_queries_,
                   [&](std::int64_t task, int thread) { attend(queries_[task], scratch[thread]); });
  }

 private:
  // Head `head` of tile t starts at (packed(t) * kv_heads + head * rows of packed keys of t) * cells.
  std::int64_t packed_at(const KeyTile& tile, std::int64_t head) const {
    return (tile.packed * shape_.kv_heads + head * round_up(tile.count, kTileLanes)) * cells_;
  }

  void pack_keys() {
    std::int64_t count = 0;
    for (const AttentionSpan& span : spans_) count += (span.k_count + kKeyTile - 1) / kKeyTile;
    key_tiles_ = workspace_.take<KeyTile>(count);
    first_tile_ = workspace_.take<std::int64_t>(static_cast<std::int64_t>(spans_.size()));
    std::int64_t packed = 0, n = 0;
    for (std::size_t s = 0; s < spans_.size(); ++s) {
      first_tile_[s] = n;
      for (std::int64_t first = 0; first < spans_[s].k_count; first += kKeyTile) {
        const std::int64_t keys = std::min(kKeyTile, spans_[s].k_count - first);
        key_tiles_[n++] = {static_cast<std::int64_t>(s), first, keys, packed};
        packed += round_up(keys, kTileLanes);
      }
    }
    keys_ = workspace_.take<Cell>(packed * shape_.kv_heads * cells_);
    values_ = workspace_.take<Cell>(packed * shape_.kv_heads * cells_);
    parallel_tasks(context_.threads, count, [&](std::int64_t task, int) {
      const KeyTile& tile = key_tiles_[task];
      const std::int64_t begin = spans_[static_cast<std::size_t>(tile.span)].k_begin + tile.first;
      for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
        const std::int64_t at = packed_at(tile, head);
        tiles_.pack_transposed(head_rows(k_, begin, tile.count, head, shape_.head_dim), width_, keys_ + at,
                               round_up(tile.count, kTileLanes));
        tiles_.pack_pairs(head_rows(v_, begin, tile.count, head, shape_.head_dim), width_, values_ + at);
      }
    });
  }

  // Query tiles end at positions that are multiples of kQueryTile, so that their last key tile holds the own
  // key of each row.
  void list_queries() {
    const auto each_tile = [this](const auto& body) {
      for (std::size_t s = 0; s < spans_.size(); ++s) {
        const std::int64_t count = spans_[s].q_count, offset = spans_[s].k_count - count;
        for (std::int64_t first = 0; first < count;) {
          const std::int64_t rows = std::min(count - first, kQueryTile - (offset + first) % kQueryTile);
          body(static_cast<std::int64_t>(s), first, rows, offset + first + rows);
          first += rows;
        }
      }
    };
    each_tile([this](auto...) { num_queries_ += shape_.kv_heads; });
    queries_ = workspace_.take<QueryTile>(num_queries_);
    std::int64_t n = 0;
    each_tile([&](std::int64_t span, std::int64_t first, std::int64_t rows, std::int64_t keys) {
      for (std::int64_t head = 0; head < shape_.kv_heads; ++head)
        queries_[n++] = {span, head, first, rows, keys};
    });
    // The largest first, so that threads end together.
    std::sort(queries_, queries_ + n,
              [this](const QueryTile& a, const QueryTile& b) { return cost(a) > cost(b); });
  }

  std::int64_t cost(const QueryTile& tile) const {
    return tile.rows * (tile.keys - first_key(tile.position(), window_));
  }

  Scratch take_scratch() {
    return {.q = workspace_.take<Cell>(kQueryTile * cells_),
            .p = workspace_.take<Cell>(kQueryTile * kKeyTile / tiles_.pair),
            .s = workspace_.take<float>(kQueryTile * kKeyTile),
            .o = workspace_.take<float>(kQueryTile * width_),
            .max = workspace_.take<float>(kQueryTile),
            .sum = workspace_.take<float>(kQueryTile)};
  }

  void attend(const QueryTile& tile, const Scratch& scratch) {
    const std::int64_t group = shape_.heads / shape_.kv_heads;
    for (std::int64_t head = tile.kv_head * group; head < (tile.kv_head + 1) * group; ++head) {
      const std::int64_t begin = spans_[static_cast<std::size_t>(tile.span)].q_begin + tile.first;
      tiles_.pack(head_rows(q_, begin, tile.rows, head, shape_.head_dim), width_, scratch.q);
      const std::int64_t last = (tile.keys - 1) / kKeyTile;
      for (std::int64_t t = last; t >= first_key(tile.position(), window_) / kKeyTile; --t) {
        step(tile, key_tiles_[first_tile_[tile.span] + t], t == last, scratch);
      }
      finish(tile, head, begin, scratch);
    }
  }

  void step(const QueryTile& tile, const KeyTile& keys, bool first, const Scratch& scratch) {
    const std::int64_t count = std::min(keys.count, tile.keys - keys.first);
    const std::int64_t visible = tile.position() - keys.first + 1;
    const std::int64_t at = packed_at(keys, tile.kv_head), pair = tiles_.pair;
    for_visible_blocks(tile.rows, count, visible,
                       [&](std::int64_t row, std::int64_t rows, std::int64_t needed) {
                         tiles_.multiply({.rows = rows,
                                          .cols = round_up(needed, kTileLanes),
                                          .depth = cells_,
                                          .a = scratch.q + row * cells_,
                                          .a_row = cells_,
                                          .a_step = 1,
                                          .b = keys_ + at,
                                          .b_row = round_up(keys.count, kTileLanes),
                                          .c = scratch.s + row * kKeyTile,
                                          .c_row = kKeyTile,
                                          .add = false});
                       });
    tiles_.softmax({.rows = tile.rows,
                    .cols = count,
                    .visible = visible,
                    .window = window_,
                    .s = scratch.s,
                    .s_row = kKeyTile,
                    .scale = shape_.scale * kLog2E,
                    .first = first,
                    .max = scratch.max,
                    .sum = scratch.sum,
                    .o = scratch.o,
                    .o_row = width_,
                    .p = scratch.p,
                    .p_row = kKeyTile / pair});
    for_visible_blocks(tile.rows, count, visible,
                       [&](std::int64_t row, std::int64_t rows, std::int64_t needed) {
                         tiles_.multiply({.rows = rows,
                                          .cols = width_,
                                          .depth = (needed + pair - 1) / pair,
                                          .a = scratch.p + row * kKeyTile / pair,
                                          .a_row = kKeyTile / pair,
                                          .a_step = 1,
                                          .b = values_ + at,
                                          .b_row = width_,
                                          .c = scratch.o + row * width_,
                                          .c_row = width_,
                                          .add = !first});
                       });
  }

  void finish(const QueryTile& tile, std::int64_t head, std::int64_t begin, const Scratch& scratch) {
    if (lse_.data != nullptr) {
      float* lse = lse_.row<float>(head) + begin;
      for (std::int64_t r = 0; r < tile.rows; ++r)
        lse[r] = scratch.max[r] / kLog2E + std::log(scratch.sum[r]);
    }
    for (std::int64_t r = 0; r < tile.rows; ++r) scratch.sum[r] = 1.0f / scratch.sum[r];
    tiles_.store(scratch.o, width_, scratch.sum, 0, head_output(o_, begin, tile.rows, head, shape_.head_dim));
  }

  KernelContext& context_;
  Workspace::Scope workspace_;
  const AttentionShape& shape_;
  ConstView q_, k_, v_;
  View o_, lse_;
  std::span<const AttentionSpan> spans_;
  const TileKernels& tiles_;
  std::int64_t window_;
  std::int64_t width_, cells_;  // padded channels of a head: values, cells
  KeyTile* key_tiles_ = nullptr;
  std::int64_t* first_tile_ = nullptr;  // of each span
  QueryTile* queries_ = nullptr;
  std::int64_t num_queries_ = 0;
  Cell *keys_ = nullptr, *values_ = nullptr;
};

void forward(KernelContext& context, const AttentionForward& call) {
  Workspace::Scope workspace(*context.workspace);
  const auto segments = call.segments->list();
  auto* spans = workspace.take<AttentionSpan>(static_cast<std::int64_t>(segments.size()));
  std::size_t count = 0;
  for (const Segment& segment : segments) {
    if (!segment.padding) {
      spans[count++] = {segment.begin, segment.length, segment.begin, segment.length};
      continue;
    }
    zero_rows(call.o.slice_rows(segment.begin, segment.length));
    for (std::int64_t head = 0; head < call.shape.heads; ++head) {
      std::fill_n(call.lse.row<float>(head) + segment.begin, segment.length, 0.0f);
    }
  }
  attend_spans(context, call.shape, call.q, call.k, call.v, {spans, count}, call.o, call.lse);
}

const KernelEntry forward_f32(attention_forward, DType::f32, forward);
const KernelEntry forward_bf16(attention_forward, DType::bf16, forward);

}  // namespace

void attend_spans(KernelContext& context, const AttentionShape& shape, ConstView q, ConstView k, ConstView v,
                  std::span<const AttentionSpan> spans, View o, View lse) {
  LODE_ASSERT(shape.heads % shape.kv_heads == 0 && q.dtype == k.dtype && q.dtype == v.dtype &&
              q.dtype == o.dtype);
  LODE_ASSERT(q.cols == shape.heads * shape.head_dim && k.cols == shape.kv_heads * shape.head_dim);
  if (spans.empty()) return;
  Forward(context, shape, q, k, v, spans, o, lse).run();
}

}  // namespace lode
