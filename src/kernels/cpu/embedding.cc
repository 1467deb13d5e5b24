#include "kernels/embedding.h"

#include <array>
#include <bit>
#include <utility>

#include "kernels/cpu/ranges.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cc"
#include "kernels/cpu/simd.h"

namespace lode {
namespace {

using Ids = std::span<const std::int32_t>;

}  // namespace
}  // namespace lode

HWY_BEFORE_NAMESPACE();
namespace lode {
namespace HWY_NAMESPACE {
namespace {

template <class Table, class T, bool add>
void look_up(Ids ids, ConstView table, float scale, View y, std::int64_t begin, std::int64_t end) {
  for (std::int64_t t = begin; t < end; ++t) {
    const Table* from = table.row<Table>(ids[static_cast<std::size_t>(t)]);
    T* out = y.row<T>(t);
    for_vectors(y.cols, [&](std::int64_t c, auto part) LODE_LAMBDA {
      V v = hn::Mul(set(scale), load(from + c, part));
      if constexpr (add) v = hn::Add(v, load(out + c, part));
      store(v, out + c, part);
    });
  }
}

template <class Table, class T>
void look_up(Ids ids, ConstView table, float scale, bool add, View y, std::int64_t begin, std::int64_t end) {
  add ? look_up<Table, T, true>(ids, table, scale, y, begin, end)
      : look_up<Table, T, false>(ids, table, scale, y, begin, end);
}

void embedding_rows(Ids ids, ConstView table, float scale, bool add, View y, std::int64_t begin,
                    std::int64_t end) {
  const bool from_bf16 = table.dtype == DType::bf16;
  if (y.dtype == DType::bf16) {
    from_bf16 ? look_up<bf16, bf16>(ids, table, scale, add, y, begin, end)
              : look_up<float, bf16>(ids, table, scale, add, y, begin, end);
  } else {
    from_bf16 ? look_up<bf16, float>(ids, table, scale, add, y, begin, end)
              : look_up<float, float>(ids, table, scale, add, y, begin, end);
  }
}

template <class T>
void scatter(Ids ids, std::span<const std::int32_t> order, ConstView dy, float scale, View dtable) {
  for (const std::int32_t t : order) {
    const T* grad = dy.row<T>(t);
    float* out = dtable.row<float>(ids[static_cast<std::size_t>(t)]);
    for_vectors(dy.cols, [&](std::int64_t c, auto part) LODE_LAMBDA {
      store(hn::MulAdd(set(scale), load(grad + c, part), load(out + c, part)), out + c, part);
    });
  }
}

void embedding_scatter(Ids ids, std::span<const std::int32_t> order, ConstView dy, float scale, View dtable) {
  dy.dtype == DType::bf16 ? scatter<bf16>(ids, order, dy, scale, dtable)
                          : scatter<float>(ids, order, dy, scale, dtable);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lode
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lode {
namespace {

HWY_EXPORT(embedding_rows);
HWY_EXPORT(embedding_scatter);

void embedding_forward_cpu(KernelContext& context, Ids ids, ConstView table, float scale, bool add, View y) {
  LODE_ASSERT(static_cast<std::int64_t>(ids.size()) == y.rows && table.cols == y.cols);
  for_rows(context, y.rows, y.cols, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(embedding_rows)(ids, table, scale, add, y, begin, end);
  });
}

// Tokens in order of (id, t): a stable radix sort, one byte of the id a pass, between the two buffers.
std::span<const std::int32_t> sorted_by_id(Ids ids, std::int64_t num_ids, std::int32_t* order,
                                           std::int32_t* other) {
  for (std::size_t t = 0; t < ids.size(); ++t) order[t] = static_cast<std::int32_t>(t);
  const int bits = std::bit_width(static_cast<std::uint64_t>(num_ids - 1));
  for (int shift = 0; shift < bits; shift += 8) {
    const auto digit = [&](std::int32_t t) {
      return static_cast<std::size_t>((ids[static_cast<std::size_t>(t)] >> shift) & 0xff);
    };
    std::array<std::int32_t, 257> start{};
    for (std::size_t i = 0; i < ids.size(); ++i) ++start[digit(order[i]) + 1];
    for (std::size_t i = 1; i < start.size(); ++i) start[i] += start[i - 1];
    for (std::size_t i = 0; i < ids.size(); ++i) other[start[digit(order[i])]++] = order[i];
    std::swap(order, other);
  }
  return {order, ids.size()};
}

void embedding_backward_cpu(KernelContext& context, Ids ids, ConstView dy, float scale, View dtable) {
  LODE_ASSERT(static_cast<std::int64_t>(ids.size()) == dy.rows && dtable.cols == dy.cols);
  if (dy.empty()) return;
  Workspace::Scope scope(*context.workspace);
  const std::int64_t tokens = dy.rows;
  std::int32_t* first = scope.take<std::int32_t>(tokens);
  std::int32_t* second = scope.take<std::int32_t>(tokens);
  const auto order = sorted_by_id(ids, dtable.rows, first, second);
  const auto id_at = [&](std::int64_t i) {
    return ids[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])];
  };
  // A range takes the ids that begin in it, so that one thread alone adds to a row.
  const auto first_new_id = [&](std::int64_t i) {
    while (i > 0 && i < tokens && id_at(i) == id_at(i - 1)) ++i;
    return i;
  };
  for_rows(context, tokens, dy.cols, [&](std::int64_t begin, std::int64_t end) {
    begin = first_new_id(begin);
    end = first_new_id(end);
    if (begin >= end) return;
    HWY_DYNAMIC_DISPATCH(embedding_scatter)
    (ids, order.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)), dy, scale,
     dtable);
  });
}

const KernelEntry forward_f32(embedding_forward, DType::f32, embedding_forward_cpu);
const KernelEntry forward_bf16(embedding_forward, DType::bf16, embedding_forward_cpu);
const KernelEntry backward_f32(embedding_backward, DType::f32, embedding_backward_cpu);
const KernelEntry backward_bf16(embedding_backward, DType::bf16, embedding_backward_cpu);

}  // namespace
}  // namespace lode
#endif  // HWY_ONCE
