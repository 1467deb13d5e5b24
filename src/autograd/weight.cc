#include "autograd/weight.h"

#include "kernels/elementwise.h"
#include "kernels/embedding.h"

namespace lode {

void GradientSink::allocate(Memory& memory, std::int64_t rows, std::int64_t cols) {
  gradient_ = Tensor(memory, MemoryTag::gradients, DType::f32, rows, cols);
}

GradientSink::Target GradientSink::target(Context&) {
  LODE_ASSERT(gradient_.defined());
  const bool accumulate = !stale_;
  stale_ = false;
  return {gradient_.view(), accumulate};
}

void Weight::look_up(Context& context, std::span<const std::int32_t> ids, float scale, bool add, View y) {
  const WeightUse use(context, *this, DType::f32);
  embedding_forward(y.dtype, context.kernel, ids, use.view(), scale, add, y);
}

View GradientSink::adding(Context& context) {
  LODE_ASSERT(gradient_.defined());
  if (stale_) fill(context.kernel, gradient_.view(), 0.0f);
  stale_ = false;
  return gradient_.view();
}

}  // namespace lode
