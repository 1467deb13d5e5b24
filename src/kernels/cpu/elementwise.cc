#include "kernels/elementwise.h"

#include <atomic>
#include <cmath>

#include "kernels/cpu/ranges.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cc"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace lode {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void add(const T* a, const T* b, T* y, std::int64_t n) {
  for_vectors(n, [&](std::int64_t i, auto part)
                     LODE_LAMBDA { store(hn::Add(load(a + i, part), load(b + i, part)), y + i, part); });
}

void add_block(ConstView a, ConstView b, View y, const Blocks::Block& at) {
  if (y.dtype == DType::bf16) {
    add(a.row<bf16>(at.row) + at.begin, b.row<bf16>(at.row) + at.begin, y.row<bf16>(at.row) + at.begin, at.n);
  } else {
    add(a.row<float>(at.row) + at.begin, b.row<float>(at.row) + at.begin, y.row<float>(at.row) + at.begin,
        at.n);
  }
}

template <class From, class To>
void convert(const From* x, To* y, std::int64_t n) {
  for_vectors(n,
              [&](std::int64_t i, auto part) LODE_LAMBDA { store(quiet(load(x + i, part)), y + i, part); });
}

void convert_f32_bf16(const float* x, bf16* y, std::int64_t n) {
  convert(x, y, n);
}
void convert_bf16_f32(const bf16* x, float* y, std::int64_t n) {
  convert(x, y, n);
}

template <class T>
void sum_rows(ConstView x, std::int64_t begin, std::int64_t end, float* out) {
  std::fill_n(out, x.cols, 0.0f);
  for (std::int64_t r = begin; r < end; ++r) {
    const T* row = x.row<T>(r);
    for_vectors(x.cols, [&](std::int64_t c, auto part) LODE_LAMBDA {
      store(hn::Add(load(out + c, part), load(row + c, part)), out + c, part);
    });
  }
}

void sum_rows_block(ConstView x, std::int64_t begin, std::int64_t end, float* out) {
  x.dtype == DType::bf16 ? sum_rows<bf16>(x, begin, end, out) : sum_rows<float>(x, begin, end, out);
}

// f32 over 1,024 elements, f64 beyond; once more in f64 when a square overflowed.
template <class T>
double squares(const T* x, std::int64_t n) {
  double total = 0.0;
  for (std::int64_t begin = 0; begin < n; begin += 1024) {
    const std::int64_t count = std::min<std::int64_t>(1024, n - begin);
    Accumulators sum;
    for_vectors_4(count, [&](std::int64_t i, auto part, auto slot) LODE_LAMBDA {
      const V v = load(x + begin + i, part);
      sum[slot] = hn::MulAdd(v, v, sum[slot]);
    });
    double part = static_cast<double>(sum.sum());
    if (!std::isfinite(part)) {
      part = 0.0;
      for (std::int64_t i = begin; i < begin + count; ++i) {
        const double v = static_cast<double>(to_f32(x[i]));
        part += v * v;
      }
    }
    total += part;
  }
  return total;
}

double squares_block(ConstView x, const Blocks::Block& at) {
  return x.dtype == DType::bf16 ? squares(x.row<bf16>(at.row) + at.begin, at.n)
                                : squares(x.row<float>(at.row) + at.begin, at.n);
}

template <class T>
F16Range f16_range(const T* x, std::int64_t n) {
  const V beyond = set(65520.0f), half_of_least = set(0x1p-25f), one = set(1.0f);
  V most = zero(), within = zero(), vanishing = zero();
  for_vectors(n, [&](std::int64_t i, auto part) LODE_LAMBDA {
    const V size = hn::Abs(load(x + i, part));
    most = hn::Max(size, most);
    within = hn::Add(within, hn::IfThenElseZero(hn::Lt(size, beyond), one));
    const V small = hn::IfThenElseZero(hn::Le(size, half_of_least), one);
    vanishing = hn::Add(vanishing, hn::IfThenElseZero(hn::Gt(size, zero()), small));
  });
  const auto count = [](V v) LODE_LAMBDA {
    return static_cast<std::int64_t>(hn::GetLane(hn::SumOfLanes(Floats(), v)));
  };
  // Lanes beyond the end were loaded as 0.
  return {hn::GetLane(hn::MaxOfLanes(Floats(), most)), ceil_div(n, kLanes) * kLanes - count(within),
          count(vanishing)};
}

F16Range f16_range_block(ConstView x, const Blocks::Block& at) {
  return x.dtype == DType::bf16 ? f16_range(x.row<bf16>(at.row) + at.begin, at.n)
                                : f16_range(x.row<float>(at.row) + at.begin, at.n);
}

// Index of the first NaN or infinity of n elements, or -1.
template <class T>
std::int64_t first_non_finite(const T* x, std::int64_t n) {
  for (std::int64_t begin = 0; begin < n; begin += 1024) {
    const std::int64_t count = std::min<std::int64_t>(1024, n - begin);
    // x - x is 0 for finite x and NaN otherwise.
    Accumulators sum;
    for_vectors_4(count, [&](std::int64_t i, auto part, auto slot) LODE_LAMBDA {
      const V v = load(x + begin + i, part);
      sum[slot] = hn::Add(sum[slot], hn::Sub(v, v));
    });
    if (sum.sum() == 0.0f) continue;
    for (std::int64_t i = begin; i < begin + count; ++i) {
      if (!std::isfinite(to_f32(x[i]))) return i;
    }
  }
  return -1;
}

std::int64_t non_finite_block(ConstView x, const Blocks::Block& at) {
  return x.dtype == DType::bf16 ? first_non_finite(x.row<bf16>(at.row) + at.begin, at.n)
                                : first_non_finite(x.row<float>(at.row) + at.begin, at.n);
}

void add_partials_range(const float* partials, std::int64_t blocks, std::int64_t cols, bool accumulate,
                        float* out, std::int64_t begin, std::int64_t end) {
  for_vectors(end - begin, [&](std::int64_t c, auto part) LODE_LAMBDA {
    V sum = zero();
    for (std::int64_t b = 0; b < blocks; ++b) sum = hn::Add(sum, load(partials + b * cols + begin + c, part));
    if (accumulate) sum = hn::Add(sum, load(out + begin + c, part));
    store(sum, out + begin + c, part);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lode
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lode {

HWY_EXPORT(add_block);
HWY_EXPORT(convert_f32_bf16);
HWY_EXPORT(convert_bf16_f32);
HWY_EXPORT(sum_rows_block);
HWY_EXPORT(squares_block);
HWY_EXPORT(f16_range_block);
HWY_EXPORT(non_finite_block);
HWY_EXPORT(add_partials_range);

namespace {

void add_rows_cpu(KernelContext& context, ConstView a, ConstView b, View y) {
  LODE_ASSERT(a.dtype == y.dtype && b.dtype == y.dtype);
  const Blocks blocks{a, b, y};
  blocks.for_each(context, [&](std::int64_t begin, std::int64_t end) {
    const auto add = HWY_DYNAMIC_DISPATCH(add_block);
    for (std::int64_t i = begin; i < end; ++i) add(a, b, y, blocks[i]);
  });
}

void add_inplace_cpu(KernelContext& context, ConstView x, View y) {
  add_rows_cpu(context, y, x, y);
}

void sum_rows_cpu(KernelContext& context, ConstView x, bool accumulate, View out) {
  LODE_ASSERT(out.dtype == DType::f32 && out.cols == x.cols);
  const std::int64_t blocks = ceil_div(x.rows, kReduceRows);
  Workspace::Scope scope(*context.workspace);
  float* partials = scope.take<float>(blocks * x.cols);
  parallel_for(context.threads, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    const auto sum = HWY_DYNAMIC_DISPATCH(sum_rows_block);
    for (std::int64_t b = begin; b < end; ++b) {
      sum(x, b * kReduceRows, std::min(x.rows, (b + 1) * kReduceRows), partials + b * x.cols);
    }
  });
  add_partials(context, partials, blocks, x.cols, accumulate, out.row<float>(0));
}

// Conversions of f16 happen when files are read and written, one element at a time.
template <class From, class To>
void convert_plain(const From* x, To* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<To, bf16>) {
      y[i] = to_bf16(to_f32(x[i]));
    } else if constexpr (std::is_same_v<To, f16>) {
      y[i] = to_f16(to_f32(x[i]));
    } else {
      y[i] = to_f32(x[i]);
    }
  }
}

template <class From, class To>
void convert_elements(const From* x, To* y, std::int64_t n) {
  if constexpr (std::is_same_v<From, To>) {
    std::copy_n(x, n, y);
  } else if constexpr (std::is_same_v<From, float> && std::is_same_v<To, bf16>) {
    HWY_DYNAMIC_DISPATCH(convert_f32_bf16)(x, y, n);
  } else if constexpr (std::is_same_v<From, bf16> && std::is_same_v<To, float>) {
    HWY_DYNAMIC_DISPATCH(convert_bf16_f32)(x, y, n);
  } else {
    convert_plain(x, y, n);
  }
}

template <class From>
void convert_block(ConstView x, View y, const Blocks::Block& at) {
  const From* from = x.row<From>(at.row) + at.begin;
  switch (y.dtype) {
    case DType::f32:
      return convert_elements(from, y.row<float>(at.row) + at.begin, at.n);
    case DType::bf16:
      return convert_elements(from, y.row<bf16>(at.row) + at.begin, at.n);
    case DType::f16:
      return convert_elements(from, y.row<f16>(at.row) + at.begin, at.n);
    case DType::i32:
      break;
  }
  fail(ErrorKind::internal, "convert: no conversion from {} to {}", name_of(x.dtype), name_of(y.dtype));
}

}  // namespace

const KernelEntry add_inplace_f32(add_inplace, DType::f32, add_inplace_cpu);
const KernelEntry add_inplace_bf16(add_inplace, DType::bf16, add_inplace_cpu);
const KernelEntry add_rows_f32(add_rows, DType::f32, add_rows_cpu);
const KernelEntry add_rows_bf16(add_rows, DType::bf16, add_rows_cpu);
const KernelEntry sum_rows_f32(sum_rows, DType::f32, sum_rows_cpu);
const KernelEntry sum_rows_bf16(sum_rows, DType::bf16, sum_rows_cpu);

void convert(KernelContext& context, ConstView x, View y) {
  const Blocks blocks{x, y};
  blocks.for_each(context, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      switch (x.dtype) {
        case DType::f32:
          convert_block<float>(x, y, blocks[i]);
          break;
        case DType::bf16:
          convert_block<bf16>(x, y, blocks[i]);
          break;
        case DType::f16:
          convert_block<f16>(x, y, blocks[i]);
          break;
        case DType::i32:
          fail(ErrorKind::internal, "convert: no conversion from i32");
      }
    }
  });
}

void fill(KernelContext& context, View y, float value) {
  const Blocks blocks{y};
  blocks.for_each(context, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Blocks::Block at = blocks[i];
      switch (y.dtype) {
        case DType::f32:
          std::fill_n(y.row<float>(at.row) + at.begin, at.n, value);
          break;
        case DType::bf16:
          std::fill_n(y.row<bf16>(at.row) + at.begin, at.n, to_bf16(value));
          break;
        case DType::f16:
          std::fill_n(y.row<f16>(at.row) + at.begin, at.n, to_f16(value));
          break;
        case DType::i32:
          std::fill_n(y.row<std::int32_t>(at.row) + at.begin, at.n, static_cast<std::int32_t>(value));
          break;
      }
    }
  });
}

F16Range range_for_f16(KernelContext& context, ConstView x) {
  const Blocks blocks{x};
  Workspace::Scope scope(*context.workspace);
  F16Range* parts = scope.take<F16Range>(blocks.count());
  blocks.for_each(context, [&](std::int64_t begin, std::int64_t end) {
    const auto range = HWY_DYNAMIC_DISPATCH(f16_range_block);
    for (std::int64_t i = begin; i < end; ++i) parts[i] = range(x, blocks[i]);
  });
  F16Range total;
  for (std::int64_t i = 0; i < blocks.count(); ++i) {
    total.largest = std::max(total.largest, parts[i].largest);
    total.overflows += parts[i].overflows;
    total.vanishing += parts[i].vanishing;
  }
  return total;
}

double sum_of_squares(KernelContext& context, ConstView x) {
  const Blocks blocks{x};
  Workspace::Scope scope(*context.workspace);
  double* partials = scope.take<double>(blocks.count());
  blocks.for_each(context, [&](std::int64_t begin, std::int64_t end) {
    const auto squares = HWY_DYNAMIC_DISPATCH(squares_block);
    for (std::int64_t i = begin; i < end; ++i) partials[i] = squares(x, blocks[i]);
  });
  double sum = 0.0;
  for (std::int64_t i = 0; i < blocks.count(); ++i) sum += partials[i];
  return sum;
}

std::optional<std::int64_t> find_non_finite(KernelContext& context, ConstView x) {
  const Blocks blocks{x};
  constexpr std::int64_t kNone = INT64_MAX;
  std::atomic<std::int64_t> lowest{kNone};
  blocks.for_each(context, [&](std::int64_t begin, std::int64_t end) {
    const auto find = HWY_DYNAMIC_DISPATCH(non_finite_block);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t offset = find(x, blocks[i]);
      if (offset < 0) continue;
      const std::int64_t found = blocks[i].row * x.cols + blocks[i].begin + offset;
      std::int64_t seen = lowest.load();
      while (found < seen && !lowest.compare_exchange_weak(seen, found)) {
      }
      return;
    }
  });
  return lowest == kNone ? std::nullopt : std::optional<std::int64_t>(lowest.load());
}

void add_partials(KernelContext& context, const float* partials, std::int64_t blocks, std::int64_t cols,
                  bool accumulate, float* out) {
  // Ranges of whole vectors, the same for any number of threads.
  constexpr std::int64_t kColumns = 64;
  const std::int64_t grain =
      std::max<std::int64_t>(1, kGrain / (kColumns * std::max<std::int64_t>(blocks, 1)));
  parallel_for(context.threads, ceil_div(cols, kColumns), grain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(add_partials_range)
    (partials, blocks, cols, accumulate, out, begin * kColumns, std::min(cols, end * kColumns));
  });
}

}  // namespace lode
#endif  // HWY_ONCE
