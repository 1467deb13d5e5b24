// What op tests share: a weight of its own storage, streams with odd segments, and a driver that compares an
// op's outputs with a double-precision reference and its gradients with central differences of that
// reference.
#pragma once

#include <functional>
#include <memory>

#include "autograd/tape.h"
#include "autograd/weight.h"
#include "kernels/elementwise.h"
#include "kernels/kernel_test.h"
#include "ops/batch.h"

namespace lode::test {

// A matrix of doubles.
struct Doubles {
  std::int64_t rows = 0, cols = 0;
  std::vector<double> values;
  Doubles() = default;
  Doubles(std::int64_t r, std::int64_t c) : rows(r), cols(c), values(static_cast<std::size_t>(r * c)) {}
  double& at(std::int64_t r, std::int64_t c) { return values[static_cast<std::size_t>(r * cols + c)]; }
  double at(std::int64_t r, std::int64_t c) const { return values[static_cast<std::size_t>(r * cols + c)]; }
  // Normal numbers that `dtype` holds exactly.
  Doubles& fill_normal(Rng& rng, DType dtype, double mean = 0, double deviation = 1) {
    for (double& value : values) value = rounded(dtype, mean + deviation * rng.next_normal());
    return *this;
  }
};

inline Doubles doubles_of(ConstView view) {
  Doubles out(view.rows, view.cols);
  for (std::int64_t r = 0; r < view.rows; ++r) {
    for (std::int64_t c = 0; c < view.cols; ++c) {
      out.at(r, c) = view.dtype == DType::f32 ? static_cast<double>(view.row<float>(r)[c])
                                              : static_cast<double>(to_f32(view.row<bf16>(r)[c]));
    }
  }
  return out;
}

inline void store(const Doubles& from, View to) {
  for (std::int64_t r = 0; r < to.rows; ++r) {
    for (std::int64_t c = 0; c < to.cols; ++c) {
      const auto value = static_cast<float>(from.at(r, c));
      if (to.dtype == DType::f32) to.row<float>(r)[c] = value;
      if (to.dtype == DType::bf16) to.row<bf16>(r)[c] = to_bf16(value);
    }
  }
}

// Everything an op needs, of one run.
struct OpContext {
  Memory memory;
  Facts facts;
  Workspace workspace{memory};
  Tape tape;
  Context context{.memory = memory, .facts = facts, .kernel = {1, &workspace}};
  explicit OpContext(DType dtype = DType::f32, int threads = 1, bool record = true) {
    context.dtype = dtype;
    context.kernel.threads = threads;
    if (record) context.tape = &tape;
  }
  Tensor tensor(const Doubles& values) {
    Tensor out = context.activation(values.rows, values.cols);
    store(values, out.view());
    return out;
  }
};

class FakeWeight : public Weight {
 public:
  FakeWeight(Memory& memory, const Doubles& values, bool trainable = true)
      : master_(memory, MemoryTag::weights, DType::f32, values.rows, values.cols),
        copy_(memory, MemoryTag::derived, DType::bf16, values.rows, values.cols),
        trainable_(trainable) {
    store(values, master_.view());
    store(values, copy_.view());
    sink_.allocate(memory, values.rows, values.cols);
    for (std::int64_t i = 0; i < values.rows; ++i)
      std::fill_n(sink_.tensor().view().row<float>(i), values.cols, 1e30f);
  }
  ~FakeWeight() override { EXPECT_EQ(uses_, 0) << "acquired and not released"; }
  std::int64_t rows() const override { return master_.rows(); }
  std::int64_t cols() const override { return master_.cols(); }
  ConstView acquire(Context&, DType form) override {
    ++uses_;
    return form == DType::f32 ? master_.view() : copy_.view();
  }
  void release() override { --uses_; }
  GradientSink* gradient() override { return trainable_ ? &sink_ : nullptr; }
  const GradientSink& sink() const { return sink_; }

 private:
  Tensor master_, copy_;
  GradientSink sink_;
  bool trainable_;
  int uses_ = 0;
};

// A stream with segments of 1, 3, 7, ... tokens, sample ids beyond 32 bits and, from 4 tokens on, a tail of
// padding.
inline Segments odd_segments(std::int64_t tokens) {
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> samples;
  auto left = static_cast<std::int32_t>(tokens);
  for (std::int32_t length = 1; left >= length && left > 0; length = 2 * length + 1) {
    lengths.push_back(length);
    samples.push_back((std::int64_t{3} << 33) + length);
    left -= length;
  }
  return Segments(lengths, samples, static_cast<std::int32_t>(tokens));
}

// Random tokens and labels below `vocab`; about a third of the labels ignored; weights between 0 and 2.
inline Batch odd_batch(std::int64_t tokens, std::int64_t vocab, Rng& rng) {
  std::vector<std::int32_t> ids, labels;
  std::vector<float> weights;
  for (std::int64_t t = 0; t < tokens; ++t) {
    ids.push_back(static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(vocab))));
    const bool target = rng.below(3) != 0;
    labels.push_back(target ? static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(vocab)))
                            : kIgnoreLabel);
    weights.push_back(target ? static_cast<float>(2 * rng.next_uniform()) : 0.0f);
  }
  return Batch(ids, labels, weights, odd_segments(tokens));
}

// One op on given numbers. Inputs and weights hold values that the dtype under test can represent.
struct OpCase {
  std::vector<Doubles> inputs, weights;
  std::function<std::vector<Doubles>(const std::vector<Doubles>& inputs, const std::vector<Doubles>& weights)>
      reference;
  std::function<std::vector<Value>(Context&, std::vector<Value> inputs, const std::vector<Weight*>& weights)>
      run;
  // The op is a loss: reference()[0] is its 1 x 1 total, and it seeds its own gradient.
  bool is_loss = false;
  // Largest error beside the largest number of a tensor (f32, bf16): outputs and gradients.
  double f32_error = 1e-5, bf16_error = 2e-2;
  // Products promise the same bits for a fixed number of threads only.
  bool threads_matter = false;
};

struct OpResult {
  std::vector<Doubles> outputs, input_gradients, weight_gradients;
};

// One run, forward and backward; seeds[i] is the gradient of output i.
OpResult run_op(const OpCase& op, DType dtype, int threads, const std::vector<Doubles>& seeds);

// |got - want| <= error * the largest |want|.
void expect_close(const Doubles& got, const Doubles& want, double error, const std::string& what);

// Forward, gradients by central differences, and the same with two threads.
void check_op(const OpCase& op, DType dtype);

// make(dtype, tokens, channels, rng) for every odd size and both dtypes.
void check_op_at_odd_sizes(
    const std::function<OpCase(DType, std::int64_t tokens, std::int64_t channels, Rng&)>& make);

}  // namespace lode::test
