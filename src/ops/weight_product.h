// The two products of an activation with a weight, in the arithmetic that the weight asks for: that of the
// activations, or int8 (kernels/int8_matmul.h). The weight is in use while the object lives.
#pragma once

#include <optional>

#include "autograd/weight.h"

namespace lode {

class WeightProduct {
 public:
  WeightProduct(Context& context, Weight& weight);

  // y = x W^T (+ bias): x [T, cols], bias [1, rows] or without data, y [T, rows] f32 or the activations'
  // type.
  void forward(ConstView x, ConstView bias, View y) const;
  // dx = dy W (+ dx when accumulate): dy [T, rows], dx [T, cols].
  void backward(ConstView dy, bool accumulate, View dx) const;
  // The same with rows [begin, begin + count) of the weight alone: y [T, count], dy [T, count].
  void forward_rows(ConstView x, std::int64_t begin, std::int64_t count, View y) const;
  void backward_rows(ConstView dy, std::int64_t begin, std::int64_t count, bool accumulate, View dx) const;

 private:
  Context& context_;
  Int8Matrix int8_;
  std::optional<WeightUse> use_;  // without an int8 form
};

}  // namespace lode
