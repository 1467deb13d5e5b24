// Copies between a file's tensors and views: any alignment, any strides, converting the element type.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace lode {

// Distance in bytes between neighbouring rows and neighbouring columns.
struct ByteStrides {
  std::int64_t row, col;
};

// Floats convert to any float (to nearest, ties to even); integers only to themselves.
bool is_convertible(DType from, DType to);

void copy_block(const std::byte* from, DType from_type, ByteStrides from_strides, std::byte* to,
                DType to_type, ByteStrides to_strides, std::int64_t rows, std::int64_t cols);

}  // namespace lode
