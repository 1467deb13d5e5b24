// What a node of the tape holds of a tensor that its backward needs. Three policies: keep the tensor, make it
// again (recompute), or read it back from a file (offload, autograd/offload.h). All give the same bits.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "autograd/context.h"

namespace lode {

// A tensor of the forward that backward gets by other means than keeping it.
class LaterTensor {
 public:
  virtual ~LaterTensor() = default;
  // The same bits at every call; held from the first call until the last owner of this object is gone.
  virtual const Tensor& get(Context& context) = 0;
};

// Made again by a pure function of what it captured.
class RecomputedTensor : public LaterTensor {
 public:
  explicit RecomputedTensor(std::function<Tensor(Context&)> make) : make_(std::move(make)) {}
  const Tensor& get(Context& context) override;

 private:
  std::function<Tensor(Context&)> make_;
  Tensor tensor_;
};

class Saved {
 public:
  explicit Saved(Tensor tensor) : tensor_(std::move(tensor)) {}
  explicit Saved(std::shared_ptr<LaterTensor> later) : later_(std::move(later)) {}
  const Tensor& get(Context& context) const { return later_ ? later_->get(context) : tensor_; }
  // For the last use: when nobody else holds the tensor (unique()), it may be written over.
  Tensor take(Context& context) {
    Tensor tensor = get(context);
    *this = Saved(Tensor());
    return tensor;
  }

 private:
  Tensor tensor_;
  std::shared_ptr<LaterTensor> later_;  // null: the tensor is kept
};

// For a node that needs a complete tensor in its backward: kept, or where the context's offload puts it.
Saved save(Context& context, const Tensor& tensor);

// Whether an op's result is kept for those that need it in backward, or made again.
enum class SavePolicy { keep, recompute };

}  // namespace lode
