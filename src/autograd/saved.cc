#include "autograd/saved.h"

#include "autograd/offload.h"

namespace lode {

const Tensor& RecomputedTensor::get(Context& context) {
  if (!tensor_.defined()) tensor_ = make_(context);
  return tensor_;
}

Saved save(Context& context, const Tensor& tensor) {
  return context.offload != nullptr && tensor.defined() ? context.offload->add(tensor) : Saved(tensor);
}

}  // namespace lode
