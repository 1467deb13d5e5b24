// How elementwise passes and reductions are cut: always at the same places, whatever the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "core/parallel.h"
#include "core/tensor.h"
#include "kernels/kernel.h"

namespace lode {

inline constexpr std::int64_t kGrain = 16384;    // elements that are worth a thread
inline constexpr std::int64_t kReduceRows = 64;  // rows of one partial sum

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// parallel_for over rows of `cols` elements.
template <class Body>
void for_rows(const KernelContext& context, std::int64_t rows, std::int64_t cols, Body body) {
  parallel_for(context.threads, rows, std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(cols, 1)),
               body);
}

// Matrices of one shape, cut into blocks of at most kGrain elements of a row (of everything, when all are
// contiguous).
class Blocks {
 public:
  Blocks(std::initializer_list<ConstView> views) {
    rows_ = views.begin()->rows;
    cols_ = views.begin()->cols;
    bool contiguous = true;
    for (const ConstView& view : views) {
      LODE_ASSERT(view.rows == rows_ && view.cols == cols_);
      contiguous = contiguous && view.contiguous();
    }
    if (contiguous) {
      cols_ *= rows_;
      rows_ = std::min<std::int64_t>(rows_, 1);
    }
    per_row_ = ceil_div(cols_, kGrain);
  }
  std::int64_t count() const { return rows_ * per_row_; }
  // Elements [begin, begin + n) of row `row`.
  struct Block {
    std::int64_t row, begin, n;
  };
  Block operator[](std::int64_t index) const {
    const std::int64_t begin = index % per_row_ * kGrain;
    return {index / per_row_, begin, std::min(kGrain, cols_ - begin)};
  }
  // parallel_for over blocks; short rows share a range.
  template <class Body>
  void for_each(const KernelContext& context, Body body) const {
    const std::int64_t size = std::max<std::int64_t>(1, std::min(cols_, kGrain));
    parallel_for(context.threads, count(), std::max<std::int64_t>(1, kGrain / size), body);
  }

 private:
  std::int64_t rows_, cols_, per_row_;
};

// out[c] (+)= sum over blocks, in order, of partials[block * cols + c].
void add_partials(KernelContext& context, const float* partials, std::int64_t blocks, std::int64_t cols,
                  bool accumulate, float* out);

}  // namespace lode
