// New tokens against a cache. A few rows read keys and values once, block by block, bound by memory; more
// rows (a prompt) go through the tiles of the forward.
#include <algorithm>

#include "core/parallel.h"
#include "kernels/attention.h"
#include "kernels/cpu/attention_plan.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_decode.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lode {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, kTileLanes>;

// out[j] = x . rows[j], both padded to width
void dot_all(const float* x, const float* rows, std::int64_t count, std::int64_t width, float* out) {
  const F32 d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t j = 0; j < count; ++j) {
    auto sum = hn::Zero(d);
    for (std::int64_t c = 0; c < width; c += lanes) {
      sum = hn::MulAdd(hn::LoadU(d, x + c), hn::LoadU(d, rows + j * width + c), sum);
    }
    out[j] = hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

// out += sum over j of factors[j] * rows[j]
void add_all(const float* factors, const float* rows, std::int64_t count, std::int64_t width, float* out) {
  const F32 d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t c = 0; c < width; c += lanes) {
    auto sum = hn::LoadU(d, out + c);
    for (std::int64_t j = 0; j < count; ++j) {
      sum = hn::MulAdd(hn::Set(d, factors[j]), hn::LoadU(d, rows + j * width + c), sum);
    }
    hn::StoreU(sum, d, out + c);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lode
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>

namespace lode {
namespace {

HWY_EXPORT(dot_all);
HWY_EXPORT(add_all);

constexpr std::int64_t kBlock = 64, kMostRows = 7;

struct Scratch {
  Cell *queries, *rows;  // [group * T, width], [kBlock, width]: f32
  float *scores, *out;   // [group * T, cache], [group * T, width]
};

class Decode {
 public:
  Decode(KernelContext& context, const AttentionDecode& call)
      : context_(context),
        call_(call),
        shape_(call.shape),
        group_(shape_.heads / shape_.kv_heads),
        window_(window_of(shape_)),
        width_(round_up(shape_.head_dim, kTileLanes)) {}

  void run() {
    Workspace::Scope workspace(*context_.workspace);
    const std::int64_t threads = std::max(1, context_.threads), rows = group_ * call_.q.rows;
    auto* scratch = workspace.take<Scratch>(threads);
    for (std::int64_t t = 0; t < threads; ++t) {
      scratch[t] = {workspace.take<Cell>(rows * width_), workspace.take<Cell>(kBlock * width_),
                    workspace.take<float>(rows * call_.k.rows), workspace.take<float>(rows * width_)};
    }
    parallel_tasks(context_.threads, shape_.kv_heads,
                   [&](std::int64_t head, int thread) { attend(head, scratch[thread]); });
  }

 private:
  // Query x = g * T + i of a group is row i of head kv_head * group + g.
  std::int64_t keys_seen(std::int64_t x) const { return call_.k.rows - call_.q.rows + x % call_.q.rows + 1; }

  std::int64_t window_begin(std::int64_t x) const { return first_key(keys_seen(x) - 1, window_); }

  void attend(std::int64_t kv_head, const Scratch& scratch) {
    const std::int64_t rows = call_.q.rows, dim = shape_.head_dim;
    const auto* queries = reinterpret_cast<const float*>(scratch.queries);
    const auto* block = reinterpret_cast<const float*>(scratch.rows);
    for (std::int64_t g = 0; g < group_; ++g) {
      f32_tiles().pack(head_rows(call_.q, 0, rows, kv_head * group_ + g, dim), width_,
                       scratch.queries + g * rows * width_);
    }
    const auto for_blocks = [&](ConstView cache, const auto& body) {
      for (std::int64_t first = 0; first < cache.rows; first += kBlock) {
        const std::int64_t count = std::min(kBlock, cache.rows - first);
        f32_tiles().pack(head_rows(cache, first, count, kv_head, dim), width_, scratch.rows);
        for (std::int64_t x = 0; x < group_ * rows; ++x) {
          const std::int64_t end = std::min(keys_seen(x) - first, count);
          const std::int64_t from = std::max<std::int64_t>(window_begin(x) - first, 0);
          if (from < end) body(x, scratch.scores + x * cache.rows + first + from, from, end - from);
        }
      }
    };
    const auto dot = HWY_DYNAMIC_DISPATCH(dot_all);
    for_blocks(call_.k, [&](std::int64_t x, float* scores, std::int64_t from, std::int64_t count) {
      dot(queries + x * width_, block + from * width_, count, width_, scores);
    });
    for (std::int64_t x = 0; x < group_ * rows; ++x) {
      softmax(scratch.scores + x * call_.k.rows + window_begin(x), keys_seen(x) - window_begin(x));
    }
    std::fill_n(scratch.out, group_ * rows * width_, 0.0f);
    const auto add = HWY_DYNAMIC_DISPATCH(add_all);
    for_blocks(call_.v, [&](std::int64_t x, const float* factors, std::int64_t from, std::int64_t count) {
      add(factors, block + from * width_, count, width_, scratch.out + x * width_);
    });
    for (std::int64_t g = 0; g < group_; ++g) {
      f32_tiles().store(scratch.out + g * rows * width_, width_, nullptr, 1.0f,
                        head_output(call_.o, 0, rows, kv_head * group_ + g, dim));
    }
  }

  void softmax(float* scores, std::int64_t count) const {
    const float top = *std::max_element(scores, scores + count);
    float sum = 0;
    for (std::int64_t j = 0; j < count; ++j) {
      scores[j] = std::exp((scores[j] - top) * shape_.scale);
      sum += scores[j];
    }
    for (std::int64_t j = 0; j < count; ++j) scores[j] /= sum;
  }

  KernelContext& context_;
  const AttentionDecode& call_;
  const AttentionShape& shape_;
  std::int64_t group_, window_, width_;
};

void decode(KernelContext& context, const AttentionDecode& whole) {
  LODE_ASSERT(whole.q.rows <= whole.k.rows && whole.k.rows == whole.v.rows && whole.q.dtype == whole.k.dtype);
  if (whole.q.empty()) return;
  // Keys before the first new token's window play no part.
  const std::int64_t begin = first_key(whole.k.rows - whole.q.rows, window_of(whole.shape));
  AttentionDecode call = whole;
  call.k = whole.k.slice_rows(begin, whole.k.rows - begin);
  call.v = whole.v.slice_rows(begin, whole.v.rows - begin);
  if (call.q.rows <= kMostRows) return Decode(context, call).run();
  const AttentionSpan span{0, call.q.rows, 0, call.k.rows};
  attend_spans(context, call.shape, call.q, call.k, call.v, {&span, 1}, call.o, {});
}

const KernelEntry decode_f32(attention_decode, DType::f32, decode);
const KernelEntry decode_bf16(attention_decode, DType::bf16, decode);

}  // namespace
}  // namespace lode
#endif
