// What ops see of a parameter: a scoped use of its values in one form, and a place for its gradient.
#pragma once

#include <cstdint>
#include <span>

#include "autograd/context.h"
#include "kernels/int8_matmul.h"

namespace lode {

// Where the gradient of a weight is accumulated, in f32. Until the first write of a step its contents are
// stale.
class GradientSink {
 public:
  // The buffer, to be overwritten when `accumulate` comes back false, else added to.
  struct Target {
    View view;
    bool accumulate;
  };
  // For kernels that can overwrite.
  Target target(Context& context);
  // For kernels that only add: zero-filled at the first use in a step.
  View adding(Context& context);
  // Takes the memory now, for good; on demand: at the first write, until free().
  void allocate(Memory& memory, std::int64_t rows, std::int64_t cols, bool on_demand = false);
  bool on_demand() const { return memory_ != nullptr; }
  void free();
  // Starts a new step: the next write overwrites.
  void reset() { stale_ = true; }
  bool stale() const { return stale_; }
  const Tensor& tensor() const { return gradient_; }

  // Nodes of tapes that use the weight and have not run; false: it was the last.
  void begin_use() { ++uses_; }
  bool end_use() { return --uses_ > 0; }

 private:
  void take_memory();

  Tensor gradient_;
  bool stale_ = true;
  Memory* memory_ = nullptr;  // on demand
  std::int64_t rows_ = 0, cols_ = 0;
  std::int64_t uses_ = 0;
};

// Hears, while backward runs, of weights that no node which is left uses: their gradients are final, and they
// may change.
class GradientListener {
 public:
  virtual ~GradientListener() = default;
  virtual void gradient_final(Context& context, GradientSink& sink) = 0;
};

// A matrix of weights [rows, cols] (a vector is [1, n]). acquire() and release() bracket every access: the
// one place for derived forms, later for gathering, offload and dequantisation.
class Weight {
 public:
  virtual ~Weight() = default;
  virtual std::int64_t rows() const = 0;
  virtual std::int64_t cols() const = 0;
  virtual ConstView acquire(Context& context, DType form) = 0;
  virtual void release() = 0;
  // The form for products in int8 arithmetic, when that is how products with this weight are to be made; else
  // without data. Valid until the values change.
  virtual Int8Matrix int8_form(Context&) { return {}; }
  // y[t] = scale * row ids[t] (+ y[t] when add), y f32 or bf16. Ids are in range.
  virtual void look_up(Context& context, std::span<const std::int32_t> ids, float scale, bool add, View y);
  virtual GradientSink* gradient() = 0;  // nullptr: frozen
};

class WeightUse {
 public:
  WeightUse(Context& context, Weight& weight, DType form)
      : weight_(weight), view_(weight.acquire(context, form)) {}
  ~WeightUse() { weight_.release(); }
  WeightUse(const WeightUse&) = delete;
  WeightUse& operator=(const WeightUse&) = delete;
  ConstView view() const { return view_; }

 private:
  Weight& weight_;
  ConstView view_;
};

}  // namespace lode
