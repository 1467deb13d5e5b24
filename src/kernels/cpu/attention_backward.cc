// Backward. With p = exp(scale * q k^T - lse) and delta = rowsum(dout * o):
//   dv += p^T dout,  ds = p * (dout v^T - delta),  dk += scale * ds^T q,  dq += scale * ds k
// Sums in f32, over key tiles (dq) and over query heads of the group and query tiles (dk, dv), each in
// increasing order; pairs of tiles outside the window are left out. Two schedules that give the same bits:
// whole heads (five products a pair of tiles), and, for what is left when they cannot be shared out evenly,
// dq and then dk, dv tile by tile (seven products).
#include <algorithm>

#include "core/parallel.h"
#include "kernels/attention.h"
#include "kernels/cpu/attention_plan.h"

namespace lode {
namespace {

constexpr std::int64_t kTile = 64;  // of queries and of keys
// Key tiles that a query tile meets while it is in the cache: what a long sample has of queries, of their
// gradients and of the output's does not fit there.
constexpr std::int64_t kKeyGroup = 4;

struct KeyPack {
  Cell *keys_t, *values_t;  // per tile [cells, keys of the tile]: pairs along the channels
  Cell* keys;               // [keys / pair, width]: pairs along the keys
};

struct QueryPack {
  Cell *q, *dout;              // [rows, cells]
  Cell *q_pairs, *dout_pairs;  // [rows / pair, width]
  float *delta, *lse;          // [rows]; lse in powers of two
};

struct Scratch {
  float *s, *dp;
  Cell *p_pairs, *ds_pairs, *ds;
};

// Where a pair of tiles adds to; null where it is not wanted. `first` = nothing there yet.
struct Target {
  float* dq = nullptr;
  float *dk = nullptr, *dv = nullptr;
  bool first_dq = false, first_dk = false;
};

struct Unit {
  std::int64_t begin, length, kv_head, cost;
  std::int64_t num_tiles() const { return (length + kTile - 1) / kTile; }
  std::int64_t rows_of(std::int64_t tile) const { return std::min(kTile, length - tile * kTile); }
};

class Backward {
 public:
  Backward(KernelContext& context, const AttentionBackward& call)
      : context_(context),
        workspace_(*context.workspace),
        call_(call),
        shape_(call.shape),
        group_(call.shape.heads / call.shape.kv_heads),
        tiles_(choose_tiles(call.q.dtype)),
        window_(window_of(call.shape)),
        width_(round_up(shape_.head_dim, kTileLanes)),
        cells_(width_ / tiles_.pair),
        threads_(std::max(1, context.threads)) {}

  void run() {
    list_units();
    if (num_units_ == 0) return;
    scratch_ = workspace_.take<Scratch>(threads_);
    for (std::int64_t i = 0; i < threads_; ++i) scratch_[i] = take_scratch();
    const std::int64_t whole = count_whole_heads();
    by_heads(whole);
    by_tiles(whole);
  }

 private:
  void list_units() {
    const auto segments = call_.segments->list();
    units_ = workspace_.take<Unit>(static_cast<std::int64_t>(segments.size()) * shape_.kv_heads);
    for (const Segment& segment : segments) {
      if (segment.padding) continue;
      longest_ = std::max<std::int64_t>(longest_, segment.length);
      for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
        units_[num_units_++] = {segment.begin, segment.length, head,
                                segment.length * std::min<std::int64_t>(segment.length, window_)};
      }
    }
    std::sort(units_, units_ + num_units_, [](const Unit& a, const Unit& b) { return a.cost > b.cost; });
  }

  // Key tiles [first, i] meet query tile i; query tiles [j, last] meet key tile j.
  std::int64_t first_key_tile(std::int64_t i) const { return first_key(i * kTile, window_) / kTile; }
  std::int64_t last_query_tile(const Unit& unit, std::int64_t j) const {
    return std::min(unit.num_tiles() - 1, ((j + 1) * kTile + window_ - 2) / kTile);
  }

  // The first units go as whole heads, largest first to the least loaded thread; the others, of which seven
  // products are computed instead of five, are shared by all threads. How many whole heads end first?
  std::int64_t count_whole_heads() {
    auto* load = workspace_.take<std::int64_t>(threads_);
    std::fill_n(load, threads_, 0);
    std::int64_t left = 0, best = 0;
    for (std::int64_t i = 0; i < num_units_; ++i) left += units_[i].cost;
    std::int64_t best_time = 7 * left;  // times five times the threads
    for (std::int64_t i = 0; i < num_units_; ++i) {
      *std::min_element(load, load + threads_) += units_[i].cost;
      left -= units_[i].cost;
      const std::int64_t time = 5 * threads_ * *std::max_element(load, load + threads_) + 7 * left;
      if (time <= best_time) best_time = time, best = i + 1;
    }
    return best;
  }

  Scratch take_scratch() {
    return {.s = workspace_.take<float>(kTile * kTile),
            .dp = workspace_.take<float>(kTile * kTile),
            .p_pairs = workspace_.take<Cell>(kTile * kTile / tiles_.pair),
            .ds_pairs = workspace_.take<Cell>(kTile * kTile / tiles_.pair),
            .ds = workspace_.take<Cell>(kTile * kTile / tiles_.pair)};
  }

  KeyPack take_key_pack(std::int64_t length) {
    const std::int64_t size = round_up(length, kTileLanes) * cells_;
    return {workspace_.take<Cell>(size), workspace_.take<Cell>(size), workspace_.take<Cell>(size)};
  }

  QueryPack take_query_pack(std::int64_t length) {
    const std::int64_t size = round_up(length, kTileLanes) * cells_;
    return {.q = workspace_.take<Cell>(size),
            .dout = workspace_.take<Cell>(size),
            .q_pairs = workspace_.take<Cell>(size),
            .dout_pairs = workspace_.take<Cell>(size),
            .delta = workspace_.take<float>(length),
            .lse = workspace_.take<float>(length)};
  }

  void pack_keys(const Unit& unit, const KeyPack& pack) {
    for (std::int64_t tile = 0; tile < unit.num_tiles(); ++tile) {
      const std::int64_t begin = unit.begin + tile * kTile, rows = unit.rows_of(tile),
                         at = tile * kTile * cells_;
      const TileRows k = head_rows(call_.k, begin, rows, unit.kv_head, shape_.head_dim);
      const TileRows v = head_rows(call_.v, begin, rows, unit.kv_head, shape_.head_dim);
      tiles_.pack_transposed(k, width_, pack.keys_t + at, round_up(rows, kTileLanes));
      tiles_.pack_transposed(v, width_, pack.values_t + at, round_up(rows, kTileLanes));
      tiles_.pack_pairs(k, width_, pack.keys + at);
    }
  }

  void pack_queries(const Unit& unit, std::int64_t head, const QueryPack& pack) {
    const TileRows q = head_rows(call_.q, unit.begin, unit.length, head, shape_.head_dim);
    const TileRows dout = head_rows(call_.dout, unit.begin, unit.length, head, shape_.head_dim);
    tiles_.pack(q, width_, pack.q);
    tiles_.pack(dout, width_, pack.dout);
    tiles_.pack_pairs(q, width_, pack.q_pairs);
    tiles_.pack_pairs(dout, width_, pack.dout_pairs);
    tiles_.dot_rows(dout, head_rows(call_.o, unit.begin, unit.length, head, shape_.head_dim), pack.delta);
    const float* lse = call_.lse.row<float>(head) + unit.begin;
    for (std::int64_t r = 0; r < unit.length; ++r) pack.lse[r] = lse[r] * kLog2E;
  }

  // Products of query tile i and key tile j <= i.
  void pair(const Unit& unit, const KeyPack& k, const QueryPack& q, std::int64_t i, std::int64_t j,
            const Scratch& scratch, const Target& target) {
    const std::int64_t rows = unit.rows_of(i), keys = unit.rows_of(j), visible = (i - j) * kTile + 1;
    const auto against_keys = [&](const Cell* a, const Cell* b, float* c) {
      for_visible_blocks(rows, keys, visible, [&](std::int64_t row, std::int64_t count, std::int64_t needed) {
        tiles_.multiply({.rows = count,
                         .cols = round_up(needed, kTileLanes),
                         .depth = cells_,
                         .a = a + (i * kTile + row) * cells_,
                         .a_row = cells_,
                         .a_step = 1,
                         .b = b + j * kTile * cells_,
                         .b_row = round_up(keys, kTileLanes),
                         .c = c + row * kTile,
                         .c_row = kTile,
                         .add = false});
      });
    };
    against_keys(q.q, k.keys_t, scratch.s);
    against_keys(q.dout, k.values_t, scratch.dp);
    tiles_.gradient({.rows = rows,
                     .cols = keys,
                     .visible = visible,
                     .window = window_,
                     .s = scratch.s,
                     .dp = scratch.dp,
                     .s_row = kTile,
                     .scale = shape_.scale * kLog2E,
                     .lse = q.lse + i * kTile,
                     .delta = q.delta + i * kTile,
                     .p_pairs = scratch.p_pairs,
                     .ds_pairs = tiles_.pair == 1 ? scratch.ds : scratch.ds_pairs,
                     .ds = scratch.ds});
    if (target.dk != nullptr) add_to_keys(q, i, rows, keys, scratch, target);
    if (target.dq != nullptr) {
      for_visible_blocks(rows, keys, visible, [&](std::int64_t row, std::int64_t count, std::int64_t needed) {
        tiles_.multiply({.rows = count,
                         .cols = width_,
                         .depth = (needed + tiles_.pair - 1) / tiles_.pair,
                         .a = scratch.ds + row * kTile / tiles_.pair,
                         .a_row = kTile / tiles_.pair,
                         .a_step = 1,
                         .b = k.keys + j * kTile * cells_,
                         .b_row = width_,
                         .c = target.dq + row * width_,
                         .c_row = width_,
                         .add = !target.first_dq});
      });
    }
  }

  void add_to_keys(const QueryPack& q, std::int64_t i, std::int64_t rows, std::int64_t keys,
                   const Scratch& scratch, const Target& target) {
    TileProduct product{.rows = keys,
                        .cols = width_,
                        .depth = (rows + tiles_.pair - 1) / tiles_.pair,
                        .a = scratch.p_pairs,
                        .a_row = 1,
                        .a_step = kTile,
                        .b = q.dout_pairs + i * kTile * cells_,
                        .b_row = width_,
                        .c = target.dv,
                        .c_row = width_,
                        .add = !target.first_dk};
    tiles_.multiply(product);
    product.a = tiles_.pair == 1 ? scratch.ds : scratch.ds_pairs;
    product.b = q.q_pairs + i * kTile * cells_;
    product.c = target.dk;
    tiles_.multiply(product);
  }

  void store_keys(const Unit& unit, std::int64_t first, std::int64_t rows, const float* dk, const float* dv) {
    const auto output = [&](View x) {
      return head_output(x, unit.begin + first, rows, unit.kv_head, shape_.head_dim);
    };
    tiles_.store(dk, width_, nullptr, shape_.scale, output(call_.dk));
    tiles_.store(dv, width_, nullptr, 1.0f, output(call_.dv));
  }

  void store_queries(const Unit& unit, std::int64_t head, std::int64_t first, std::int64_t rows,
                     const float* dq) {
    tiles_.store(dq, width_, nullptr, shape_.scale,
                 head_output(call_.dq, unit.begin + first, rows, head, shape_.head_dim));
  }

  struct HeadBuffers {
    KeyPack keys;
    QueryPack queries;
    float *dq, *dk, *dv;
  };

  // Units [0, count).
  void by_heads(std::int64_t count) {
    if (count == 0) return;
    auto* buffers = workspace_.take<HeadBuffers>(threads_);
    for (std::int64_t t = 0; t < std::min(threads_, count); ++t) {
      buffers[t] = {take_key_pack(longest_), take_query_pack(longest_),
                    workspace_.take<float>(longest_ * width_), workspace_.take<float>(longest_ * width_),
                    workspace_.take<float>(longest_ * width_)};
    }
    parallel_tasks(context_.threads, count, [&](std::int64_t task, int thread) {
      whole_head(units_[task], buffers[thread], scratch_[thread]);
    });
  }

  // Query tile i and key tiles [first, last].
  void query_against(const Unit& unit, const HeadBuffers& buffers, std::int64_t i, std::int64_t first,
                     std::int64_t last, std::int64_t group_head, const Scratch& scratch) {
    for (std::int64_t j = std::max(first, first_key_tile(i)); j <= last; ++j) {
      pair(unit, buffers.keys, buffers.queries, i, j, scratch,
           {.dq = buffers.dq + i * kTile * width_,
            .dk = buffers.dk + j * kTile * width_,
            .dv = buffers.dv + j * kTile * width_,
            .first_dq = j == first_key_tile(i),
            .first_dk = group_head == 0 && i == j});
    }
  }

  void whole_head(const Unit& unit, const HeadBuffers& buffers, const Scratch& scratch) {
    pack_keys(unit, buffers.keys);
    for (std::int64_t g = 0; g < group_; ++g) {
      const std::int64_t head = unit.kv_head * group_ + g;
      pack_queries(unit, head, buffers.queries);
      for (std::int64_t j = 0; j < unit.num_tiles(); j += kKeyGroup) {
        const std::int64_t last = std::min(j + kKeyGroup, unit.num_tiles()) - 1;
        for (std::int64_t i = j; i <= last_query_tile(unit, last); ++i)
          query_against(unit, buffers, i, j, std::min(last, i), g, scratch);
      }
      store_queries(unit, head, 0, unit.length, buffers.dq);
    }
    store_keys(unit, 0, unit.length, buffers.dk, buffers.dv);
  }

  struct TileTask {
    std::int64_t unit, tile, group_head, cost;
  };

  // Units [first, num_units_).
  void by_tiles(std::int64_t first) {
    const std::int64_t num_units = num_units_ - first;
    if (num_units == 0) return;
    auto* keys = workspace_.take<KeyPack>(num_units_);
    auto* queries = workspace_.take<QueryPack>(num_units_ * group_);
    std::int64_t num_tiles = 0;
    for (std::int64_t u = first; u < num_units_; ++u) {
      keys[u] = take_key_pack(units_[u].length);
      for (std::int64_t g = 0; g < group_; ++g) queries[u * group_ + g] = take_query_pack(units_[u].length);
      num_tiles += units_[u].num_tiles();
    }
    parallel_tasks(context_.threads, num_units * (1 + group_), [&](std::int64_t task, int) {
      const std::int64_t u = first + task / (1 + group_), g = task % (1 + group_);
      if (g == group_) return pack_keys(units_[u], keys[u]);
      pack_queries(units_[u], units_[u].kv_head * group_ + g, queries[u * group_ + g]);
    });

    auto** sums = workspace_.take<float*>(2 * threads_);
    for (std::int64_t t = 0; t < 2 * threads_; ++t) sums[t] = workspace_.take<float>(kTile * width_);
    auto* tasks = workspace_.take<TileTask>(num_tiles * (1 + group_));
    std::int64_t count = 0;
    for (std::int64_t u = first; u < num_units_; ++u) {
      for (std::int64_t t = 0; t < units_[u].num_tiles(); ++t) {
        for (std::int64_t g = 0; g < group_; ++g) tasks[count++] = {u, t, g, 3 * (t - first_key_tile(t) + 1)};
        tasks[count++] = {u, t, -1, 4 * (last_query_tile(units_[u], t) - t + 1) * group_};
      }
    }
    std::sort(tasks, tasks + count, [](const TileTask& a, const TileTask& b) { return a.cost > b.cost; });
    parallel_tasks(context_.threads, count, [&](std::int64_t index, int thread) {
      const TileTask& task = tasks[index];
      if (task.group_head >= 0) {
        query_tile(task, keys[task.unit], queries[task.unit * group_ + task.group_head], sums[2 * thread],
                   scratch_[thread]);
      } else {
        key_tile(task, keys[task.unit], queries + task.unit * group_, sums[2 * thread], sums[2 * thread + 1],
                 scratch_[thread]);
      }
    });
  }

  void query_tile(const TileTask& task, const KeyPack& keys, const QueryPack& queries, float* dq,
                  const Scratch& scratch) {
    const Unit& unit = units_[task.unit];
    const std::int64_t first = first_key_tile(task.tile);
    for (std::int64_t j = first; j <= task.tile; ++j) {
      pair(unit, keys, queries, task.tile, j, scratch, {.dq = dq, .first_dq = j == first});
    }
    store_queries(unit, unit.kv_head * group_ + task.group_head, task.tile * kTile, unit.rows_of(task.tile),
                  dq);
  }

  void key_tile(const TileTask& task, const KeyPack& keys, const QueryPack* queries, float* dk, float* dv,
                const Scratch& scratch) {
    const Unit& unit = units_[task.unit];
    for (std::int64_t g = 0; g < group_; ++g) {
      for (std::int64_t i = task.tile; i <= last_query_tile(unit, task.tile); ++i) {
        pair(unit, keys, queries[g], i, task.tile, scratch,
             {.dk = dk, .dv = dv, .first_dk = g == 0 && i == task.tile});
      }
    }
    store_keys(unit, task.tile * kTile, unit.rows_of(task.tile), dk, dv);
  }

  KernelContext& context_;
  Workspace::Scope workspace_;
  const AttentionBackward& call_;
  const AttentionShape& shape_;
  std::int64_t group_;  // query heads of a key/value head
  const TileKernels& tiles_;
  std::int64_t window_;
  std::int64_t width_, cells_;  // padded channels of a head: values, cells
  std::int64_t threads_;
  Unit* units_ = nullptr;
  std::int64_t num_units_ = 0, longest_ = 0;
  Scratch* scratch_ = nullptr;
};

void backward(KernelContext& context, const AttentionBackward& call) {
  LODE_ASSERT(call.q.dtype == call.dout.dtype && call.q.dtype == call.dq.dtype &&
              call.q.dtype == call.dk.dtype);
  for (const Segment& segment : call.segments->list()) {
    if (!segment.padding) continue;
    for (const View& x : {call.dq, call.dk, call.dv}) zero_rows(x.slice_rows(segment.begin, segment.length));
  }
  Backward(context, call).run();
}

const KernelEntry backward_f32(attention_backward, DType::f32, backward);
const KernelEntry backward_bf16(attention_backward, DType::bf16, backward);

}  // namespace
}  // namespace lode
