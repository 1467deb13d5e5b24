#include "kernels/cross_entropy.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/ranges.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cross_entropy.cc"
#include "kernels/cpu/simd.h"
// After simd.h, per target.
#include "kernels/cpu/simd_math.h"

// A row is read once, in blocks that stay in the first cache: the block's maximum m, then e = exp(z - m) into
// scratch with their sum. Then each block's e is scaled by weight * exp(m - max) / sum. One exponential an
// element.
#ifndef LODE_CROSS_ENTROPY_ONCE  // this file is compiled once per target
#define LODE_CROSS_ENTROPY_ONCE
namespace lode {
namespace {

constexpr std::int64_t kBlock = 2048;
constexpr std::int64_t kRowsPerTask = 4;

// Per-thread memory: exponentials of a row, and reference and sum of each of its blocks.
struct Scratch {
  float* exponentials;  // [V]; nullptr when there is no gradient
  float* reference;     // [ceil(V / kBlock)]
  float* sum;
};

}  // namespace
}  // namespace lode
#endif

HWY_BEFORE_NAMESPACE();
namespace lode {
namespace HWY_NAMESPACE {
namespace {

template <class T>
HWY_INLINE float largest(const T* z, std::int64_t n) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  Accumulators most(kLowest);
  for_vectors_4(n, [&](std::int64_t c, auto part, auto slot) LODE_LAMBDA {
    most[slot] = hn::Max(most[slot], or_beyond(load(z + c, part), part, kLowest));
  });
  return hn::GetLane(hn::MaxOfLanes(Floats(), hn::Max(hn::Max(most.v0, most.v1), hn::Max(most.v2, most.v3))));
}

template <class T, bool keep>
HWY_INLINE float sum_exponentials(const T* z, float reference, float* exponentials, std::int64_t n) {
  Accumulators sum;
  for_vectors_4(n, [&](std::int64_t c, auto part, auto slot) LODE_LAMBDA {
    const V e = exp_not_large(hn::Sub(load(z + c, part), set(reference)));
    if constexpr (keep) store(e, exponentials + c, part);
    sum[slot] = hn::Add(sum[slot], or_beyond(e, part, 0.0f));
  });
  return sum.sum();
}

struct Softmax {
  float max;
  double sum;  // of exp(z - max)
};
template <class T, bool keep>
Softmax softmax(const T* z, std::int64_t n, const Scratch& scratch) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  float max = kLowest;
  for (std::int64_t begin = 0, b = 0; begin < n; begin += kBlock, ++b) {
    const std::int64_t count = std::min(kBlock, n - begin);
    const float m = largest(z + begin, count);
    scratch.reference[b] = m;
    // A block of -inf has the sum 0 under any finite reference.
    scratch.sum[b] = sum_exponentials<T, keep>(z + begin, m == kLowest ? 0.0f : m,
                                               keep ? scratch.exponentials + begin : nullptr, count);
    max = std::max(max, m);
  }
  double sum = 0.0;
  for (std::int64_t begin = 0, b = 0; begin < n; begin += kBlock, ++b) {
    const float factor = scratch.reference[b] == kLowest ? 0.0f : std::exp(scratch.reference[b] - max);
    sum += static_cast<double>(factor) * static_cast<double>(scratch.sum[b]);
    scratch.reference[b] = factor;
  }
  return {max, sum};
}

template <class T>
bool is_first_largest(const T* z, std::int64_t label, float max) {
  if (to_f32(z[label]) != max) return false;
  for (std::int64_t j = 0; j < label; ++j) {
    if (to_f32(z[j]) == max) return false;
  }
  return true;
}

template <class G>
void write_gradient(G* out, std::int64_t n, std::int64_t label, float weight, double sum,
                    const Scratch& scratch) {
  const double scale = static_cast<double>(weight) / sum;
  const auto factor = [&](std::int64_t b) {
    return static_cast<float>(scale * static_cast<double>(scratch.reference[b]));
  };
  for (std::int64_t begin = 0, b = 0; begin < n; begin += kBlock, ++b) {
    const V by = set(factor(b));
    const float* e = scratch.exponentials + begin;
    for_vectors(std::min(kBlock, n - begin), [&](std::int64_t c, auto part) LODE_LAMBDA {
      store(hn::Mul(load(e + c, part), by), out + begin + c, part);
    });
  }
  const float value = factor(label / kBlock) * scratch.exponentials[label] - weight;
  if constexpr (std::is_same_v<G, float>) {
    out[label] = value;
  } else {
    const bf16 rounded = to_bf16(value);
    std::memcpy(out + label, &rounded, sizeof(rounded));
  }
}

template <class T, class G>
void row(const CrossEntropyRows& a, std::int64_t r, const Scratch& scratch) {
  const auto index = static_cast<std::size_t>(r);
  const std::int64_t n = a.logits.cols;
  const std::int64_t label = a.labels[index];
  const bool gradient = a.dlogits.data != nullptr;
  G* out = gradient ? a.dlogits.row<G>(r) : nullptr;
  if (label < 0) {
    a.loss[index] = 0.0f;
    if (!a.correct.empty()) a.correct[index] = 0;
    if (gradient) std::fill_n(out, n, G{});
    return;
  }
  const T* z = a.logits.row<T>(r);
  const bool needed = gradient && a.weight[index] != 0.0f;
  const Softmax s = needed ? softmax<T, true>(z, n, scratch) : softmax<T, false>(z, n, scratch);
  a.loss[index] = static_cast<float>(std::log(s.sum) - static_cast<double>(to_f32(z[label]) - s.max));
  if (!a.correct.empty()) a.correct[index] = is_first_largest(z, label, s.max) ? 1 : 0;
  if (needed) {
    write_gradient(out, n, label, a.weight[index], s.sum, scratch);
  } else if (gradient) {
    std::fill_n(out, n, G{});
  }
}

template <class E>
void softmax_row(const SoftmaxBlock& a, std::int64_t r) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  const auto index = static_cast<std::size_t>(r);
  const std::int64_t n = a.logits.cols, label = a.labels[index] - a.first;
  const float* z = a.logits.row<float>(r);
  E* out = a.exponentials.row<E>(r);
  SoftmaxRow& row = a.rows[index];
  a.factors[index] = 1.0f;
  if (a.labels[index] < 0) {
    std::memset(static_cast<void*>(out), 0, static_cast<std::size_t>(n) * sizeof(E));
    return;
  }
  const bool here = label >= 0 && label < n;
  if (here) row.label = z[label];
  const float most = largest(z, n);
  if (most > row.max) {
    a.factors[index] = row.max == kLowest ? 0.0f : std::exp(row.max - most);
    row.sum *= static_cast<double>(a.factors[index]);
    row.max = most;
    row.correct = here && is_first_largest(z, label, most);
  }
  const V reference = set(row.max == kLowest ? 0.0f : row.max);
  Accumulators sum;
  for_vectors_4(n, [&](std::int64_t c, auto part, auto slot) LODE_LAMBDA {
    const V e = exp_not_large(hn::Sub(load(z + c, part), reference));
    sum[slot] = hn::Add(sum[slot], or_beyond(e, part, 0.0f));
    store(e, out + c, part);
  });
  row.sum += static_cast<double>(sum.sum());
}

void softmax_range(const SoftmaxBlock& a, std::int64_t begin, std::int64_t end) {
  for_type(a.exponentials.dtype, [&](auto type) {
    for (std::int64_t r = begin; r < end; ++r) softmax_row<decltype(type)>(a, r);
  });
}

void cross_entropy_range(const CrossEntropyRows& a, std::int64_t begin, std::int64_t end,
                         const Scratch& scratch) {
  const bool from_bf16 = a.logits.dtype == DType::bf16;
  for_type(a.dlogits.dtype, [&](auto type) {
    using G = decltype(type);
    for (std::int64_t r = begin; r < end; ++r)
      from_bf16 ? row<bf16, G>(a, r, scratch) : row<float, G>(a, r, scratch);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lode
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lode {
namespace {

HWY_EXPORT(cross_entropy_range);
HWY_EXPORT(softmax_range);

void cross_entropy_cpu(KernelContext& context, const CrossEntropyRows& a) {
  const std::int64_t rows = a.logits.rows, n = a.logits.cols, blocks = ceil_div(n, kBlock);
  const auto count = static_cast<std::size_t>(rows);
  LODE_ASSERT(a.labels.size() == count && a.loss.size() == count);
  LODE_ASSERT(a.correct.empty() || a.correct.size() == count);
  LODE_ASSERT(a.dlogits.data == nullptr || a.weight.size() == count);
  const std::int64_t tasks = ceil_div(rows, kRowsPerTask);
  const std::int64_t threads = std::min<std::int64_t>(context.threads, tasks);
  // Whole cache lines apart, so that threads do not share one.
  const std::int64_t stride = ceil_div(n + 2 * blocks, 16) * 16;
  Workspace::Scope scope(*context.workspace);
  float* memory = scope.take<float>(threads * stride);
  parallel_tasks(static_cast<int>(threads), tasks, [&](std::int64_t task, int thread) {
    float* mine = memory + thread * stride;
    HWY_DYNAMIC_DISPATCH(cross_entropy_range)
    (a, task * kRowsPerTask, std::min(rows, (task + 1) * kRowsPerTask), {mine, mine + n, mine + n + blocks});
  });
}

const KernelEntry entry_f32(cross_entropy_rows, DType::f32, cross_entropy_cpu);
const KernelEntry entry_bf16(cross_entropy_rows, DType::bf16, cross_entropy_cpu);

}  // namespace

void softmax_block(KernelContext& context, const SoftmaxBlock& a) {
  const auto count = static_cast<std::size_t>(a.logits.rows);
  LODE_ASSERT(a.labels.size() == count && a.rows.size() == count && a.factors.size() == count);
  for_rows(context, a.logits.rows, a.logits.cols, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(softmax_range)(a, begin, end);
  });
}

}  // namespace lode
#endif  // HWY_ONCE
