// Parameters. A logical parameter is a named matrix: a row slice of a storage that several may share (q | k |
// v). Products use the whole storage; names, files, optimizers and reports speak of logical parameters.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/weight.h"

namespace lode {

// f32 master values with their derived forms and gradient.
class ParameterStorage : public Weight {
 public:
  ParameterStorage(Memory& memory, std::int64_t rows, std::int64_t cols, bool trainable);

  std::int64_t rows() const override { return master_.rows(); }
  std::int64_t cols() const override { return master_.cols(); }
  // f32: the master itself. bf16: a copy kept by version, refreshed here when the optimizer's pass has not.
  ConstView acquire(Context& context, DType form) override;
  void release() override {}
  GradientSink* gradient() override { return trainable_ ? &gradient_ : nullptr; }

  const Tensor& master() const { return master_; }
  // The bf16 copy for an optimizer's pass to refresh, or an undefined tensor when nothing has used one.
  const Tensor& bf16_copy() const { return copy_; }
  // Values changed; copy_is_fresh: the same pass has written the bf16 copy too.
  void changed(bool copy_is_fresh);
  // Allocates the gradient; before the first backward.
  void allocate_gradient();

 private:
  Memory& memory_;
  Tensor master_, copy_;
  GradientSink gradient_;
  bool trainable_;
  std::uint64_t version_ = 0, copy_version_ = 0;
};

enum class FileLayout {
  same,        // as stored here, [out, in]
  transposed,  // the file holds [in, out] (GPT-2's Conv1D)
};

enum class InitKind { normal, zeros, ones };

struct Init {
  InitKind kind = InitKind::normal;
  double deviation = 0.02;  // normal only
};

class Parameter {
 public:
  std::string name;                 // Hugging Face's tensor name
  std::int64_t rows = 1, cols = 1;  // [out, in]; a vector is [1, n]
  bool vector = false;              // one-dimensional in files
  FileLayout layout = FileLayout::same;
  Init init;
  bool decay = true;  // weight decay applies (not to norms and biases)

  // Where it lives; set when it is added to a list.
  std::shared_ptr<ParameterStorage> storage;
  std::int64_t begin = 0;  // first row (of a matrix) or column (of a vector) in the storage

  std::int64_t numel() const { return rows * cols; }
  bool trainable() const { return storage->gradient() != nullptr; }
  View values() const { return part_of(storage->master()); }
  View gradient() const { return part_of(storage->gradient()->tensor()); }  // trainable ones
  View bf16_copy() const;                                                   // data == nullptr without a copy
  std::vector<std::int64_t> file_shape() const;

 private:
  View part_of(const Tensor& whole) const;
};

class ParameterList {
 public:
  explicit ParameterList(Memory& memory, bool trainable) : memory_(memory), trainable_(trainable) {}

  // One storage for the parts: matrices with equal cols stacked along rows, or vectors side by side.
  Weight* add(std::vector<Parameter> parts);

  const std::vector<Parameter>& all() const { return parameters_; }
  const std::vector<std::shared_ptr<ParameterStorage>>& storages() const { return storages_; }
  const Parameter* find(std::string_view name) const;
  std::int64_t numel() const;
  void allocate_gradients();
  void reset_gradients();  // the next writes overwrite

 private:
  Memory& memory_;
  bool trainable_;
  std::vector<Parameter> parameters_;
  std::vector<std::shared_ptr<ParameterStorage>> storages_;
};

// Fills a parameter from the stream (seed, name): independent of order, threads and other parameters.
void initialise(Context& context, const Parameter& parameter, std::uint64_t seed);

}  // namespace lode
