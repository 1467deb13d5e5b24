#include "autograd/saved.h"

namespace lode {

const Tensor& RecomputedTensor::get(Context& context) {
  if (!tensor_.defined()) tensor_ = make_(context);
  return tensor_;
}

}  // namespace lode
