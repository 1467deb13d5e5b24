#include "core/tensor.h"

namespace lode {
namespace {

template <class V>
V rows_of(V view, std::int64_t begin, std::int64_t count) {
  LODE_ASSERT(begin >= 0 && count >= 0 && begin + count <= view.rows);
  const std::size_t skip = static_cast<std::size_t>(begin * view.stride) * size_of(view.dtype);
  if constexpr (std::is_same_v<V, View>) {
    view.data = static_cast<std::byte*>(view.data) + skip;
  } else {
    view.data = static_cast<const std::byte*>(view.data) + skip;
  }
  view.rows = count;
  return view;
}

template <class V>
V cols_of(V view, std::int64_t begin, std::int64_t count) {
  LODE_ASSERT(begin >= 0 && count >= 0 && begin + count <= view.cols);
  const std::size_t skip = static_cast<std::size_t>(begin) * size_of(view.dtype);
  if constexpr (std::is_same_v<V, View>) {
    view.data = static_cast<std::byte*>(view.data) + skip;
  } else {
    view.data = static_cast<const std::byte*>(view.data) + skip;
  }
  view.cols = count;
  return view;
}

}  // namespace

ConstView ConstView::slice_rows(std::int64_t begin, std::int64_t count) const {
  return rows_of(*this, begin, count);
}
ConstView ConstView::slice_cols(std::int64_t begin, std::int64_t count) const {
  return cols_of(*this, begin, count);
}
View View::slice_rows(std::int64_t begin, std::int64_t count) const {
  return rows_of(*this, begin, count);
}
View View::slice_cols(std::int64_t begin, std::int64_t count) const {
  return cols_of(*this, begin, count);
}

Tensor::Tensor(Memory& memory, MemoryTag tag, DType dtype, std::int64_t rows, std::int64_t cols)
    : dtype_(dtype), rows_(rows), cols_(cols), stride_(cols) {
  LODE_ASSERT(rows >= 0 && cols >= 0);
  storage_ = memory.allocate(bytes(), tag);
}

View Tensor::view() const {
  LODE_ASSERT(defined());
  std::byte* data = storage_->data() + static_cast<std::size_t>(offset_) * size_of(dtype_);
  return {data, dtype_, rows_, cols_, stride_};
}

Tensor Tensor::slice_rows(std::int64_t begin, std::int64_t count) const {
  LODE_ASSERT(begin >= 0 && count >= 0 && begin + count <= rows_);
  Tensor part = *this;
  part.offset_ += begin * stride_;
  part.rows_ = count;
  return part;
}

Tensor Tensor::slice_cols(std::int64_t begin, std::int64_t count) const {
  LODE_ASSERT(begin >= 0 && count >= 0 && begin + count <= cols_);
  Tensor part = *this;
  part.offset_ += begin;
  part.cols_ = count;
  return part;
}

}  // namespace lode
