#include "ops/weight_product.h"

#include "kernels/matmul.h"

namespace lode {

WeightProduct::WeightProduct(Context& context, Weight& weight)
    : context_(context), int8_(weight.int8_form(context)) {
  if (int8_.data == nullptr) use_.emplace(context, weight, context.dtype);
}

void WeightProduct::forward(ConstView x, ConstView bias, View y) const {
  if (use_) {
    matmul(context_.kernel, {.a = x, .b = use_->view(), .transpose_b = true, .bias = bias, .c = y});
  } else {
    int8_matmul(context_.kernel, {.a = x, .b = int8_, .transpose_b = true, .bias = bias, .c = y});
  }
}

void WeightProduct::backward(ConstView dy, bool accumulate, View dx) const {
  if (use_) {
    matmul(context_.kernel, {.a = dy, .b = use_->view(), .accumulate = accumulate, .c = dx});
  } else {
    int8_matmul(context_.kernel, {.a = dy, .b = int8_, .accumulate = accumulate, .c = dx});
  }
}

void WeightProduct::forward_rows(ConstView x, std::int64_t begin, std::int64_t count, View y) const {
  if (use_) {
    matmul(context_.kernel,
           {.a = x, .b = use_->view().slice_rows(begin, count), .transpose_b = true, .c = y});
  } else {
    int8_matmul(context_.kernel, {.a = x, .b = int8_.slice_rows(begin, count), .transpose_b = true, .c = y});
  }
}

void WeightProduct::backward_rows(ConstView dy, std::int64_t begin, std::int64_t count, bool accumulate,
                                  View dx) const {
  if (use_) {
    matmul(context_.kernel,
           {.a = dy, .b = use_->view().slice_rows(begin, count), .accumulate = accumulate, .c = dx});
  } else {
    int8_matmul(context_.kernel,
                {.a = dy, .b = int8_.slice_rows(begin, count), .accumulate = accumulate, .c = dx});
  }
}

}  // namespace lode
