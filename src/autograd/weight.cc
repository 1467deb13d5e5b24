#include "autograd/weight.h"

#include "kernels/elementwise.h"
#include "kernels/embedding.h"

namespace lode {

void GradientSink::allocate(Memory& memory, std::int64_t rows, std::int64_t cols, bool on_demand) {
  memory_ = &memory;
  rows_ = rows;
  cols_ = cols;
  if (on_demand) return;
  take_memory();
  memory_ = nullptr;
}

void GradientSink::take_memory() {
  if (memory_ != nullptr && !gradient_.defined())
    gradient_ = Tensor(*memory_, MemoryTag::gradients, DType::f32, rows_, cols_);
  LODE_ASSERT(gradient_.defined());
}

void GradientSink::free() {
  LODE_ASSERT(on_demand());
  gradient_ = Tensor();
  stale_ = true;
}

GradientSink::Target GradientSink::target(Context&) {
  take_memory();
  const bool accumulate = !stale_;
  stale_ = false;
  return {gradient_.view(), accumulate};
}

void Weight::look_up(Context& context, std::span<const std::int32_t> ids, float scale, bool add, View y) {
  const WeightUse use(context, *this, DType::f32);
  embedding_forward(y.dtype, context.kernel, ids, use.view(), scale, add, y);
}

View GradientSink::adding(Context& context) {
  take_memory();
  if (stale_) fill(context.kernel, gradient_.view(), 0.0f);
  stale_ = false;
  return gradient_.view();
}

}  // namespace lode
