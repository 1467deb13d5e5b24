// Tensors are row-major matrices with an optional row stride: activations [T, D], weights [out, in], vectors
// [1, N]. A view borrows memory and knows its type at run time; a Tensor shares ownership of a Storage.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/dtype.h"
#include "core/fail.h"
#include "core/memory.h"

namespace lode {

// rows x cols elements; row r starts at element r * stride. Borrowed: valid while the owner lives.
struct ConstView {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0, cols = 0, stride = 0;

  template <class T>
  const T* row(std::int64_t r) const {
    return static_cast<const T*>(data) + r * stride;
  }
  bool empty() const { return rows == 0 || cols == 0; }
  std::int64_t numel() const { return rows * cols; }
  bool contiguous() const { return stride == cols || rows <= 1; }
  ConstView slice_rows(std::int64_t begin, std::int64_t count) const;
  ConstView slice_cols(std::int64_t begin, std::int64_t count) const;
};

struct View {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0, cols = 0, stride = 0;

  template <class T>
  T* row(std::int64_t r) const {
    return static_cast<T*>(data) + r * stride;
  }
  bool empty() const { return rows == 0 || cols == 0; }
  std::int64_t numel() const { return rows * cols; }
  bool contiguous() const { return stride == cols || rows <= 1; }
  View slice_rows(std::int64_t begin, std::int64_t count) const;
  View slice_cols(std::int64_t begin, std::int64_t count) const;
  operator ConstView() const { return {data, dtype, rows, cols, stride}; }
};

template <class T>
ConstView view_of(std::span<const T> values) {
  const auto n = static_cast<std::int64_t>(values.size());
  return {values.data(), dtype_of<T>(), 1, n, n};
}

class Tensor {
 public:
  Tensor() = default;
  // Contents start undefined.
  Tensor(Memory& memory, MemoryTag tag, DType dtype, std::int64_t rows, std::int64_t cols);
  // Its memory came fresh from the system: all zero until something is written.
  bool was_zero() const { return storage_->was_zero(); }

  bool defined() const { return storage_ != nullptr; }
  DType dtype() const { return dtype_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  std::int64_t numel() const { return rows_ * cols_; }
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype_); }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  // True when no other tensor shares the storage, so that it may be written in place.
  bool unique() const { return storage_.use_count() == 1; }

  View view() const;
  // Parts share the storage.
  Tensor slice_rows(std::int64_t begin, std::int64_t count) const;
  Tensor slice_cols(std::int64_t begin, std::int64_t count) const;

 private:
  std::shared_ptr<Storage> storage_;
  std::int64_t offset_ = 0;  // elements
  DType dtype_ = DType::f32;
  std::int64_t rows_ = 0, cols_ = 0, stride_ = 0;
};

}  // namespace lode
