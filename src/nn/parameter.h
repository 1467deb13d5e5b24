// Parameters. A logical parameter is a named matrix: a row slice of a storage that several may share (q | k |
// v). Products use the whole storage; names, files, optimizers and reports speak of logical parameters.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/weight.h"
#include "nn/adapter.h"

namespace lode {

// Values with their derived forms and gradient. Trained: f32 masters or bf16. Frozen: the form that is kept.
class ParameterStorage : public Weight {
 public:
  ParameterStorage(Memory& memory, std::int64_t rows, std::int64_t cols, DType dtype, bool trainable);

  std::int64_t rows() const override { return rows_; }
  std::int64_t cols() const override { return cols_; }
  // The values themselves when they have that form. Else bf16 of f32: a copy kept by version, refreshed here
  // when the optimizer's pass has not; f32 of bf16: a scratch matrix until release.
  ConstView acquire(Context& context, DType form) override;
  void release() override;
  void look_up(Context& context, std::span<const std::int32_t> ids, float scale, bool add, View y) override;
  Int8Matrix int8_form(Context& context) override;
  GradientSink* gradient() override { return trainable_ ? &gradient_ : nullptr; }

  const Tensor& values() const { return values_; }
  // The bf16 copy for an optimizer's pass to refresh, or an undefined tensor when nothing has used one.
  const Tensor& bf16_copy() const { return copy_; }
  // Values changed; copy_is_fresh: the same pass has written the bf16 copy too.
  void changed(bool copy_is_fresh);
  // Makes room for the gradient, before the first backward; on demand: as GradientSink says.
  void allocate_gradient(bool on_demand = false);
  // Of a storage made trainable: while off it counts as frozen and has no gradient memory; on allocates it.
  void train(bool on);
  void compute_in_int8();  // of a frozen storage: products with it are int8 from now on
  // Rows [first, first + out.rows) into out, f32 or bf16.
  virtual void read_rows(Context& context, std::int64_t first, View out);
  // Rows [first, first + values.rows), which lie in one part.
  virtual void write_rows(Context& context, std::int64_t first, ConstView values);

 protected:
  // Without values of its own.
  ParameterStorage(Memory& memory, std::int64_t rows, std::int64_t cols)
      : memory_(memory), rows_(rows), cols_(cols), trainable_(false) {}
  ConstView acquire_scratch(Context& context, DType form);
  virtual const std::byte* int8_rows(Context& context);  // in QuantFormat::int8; here made of the values
  Memory& memory_;

 private:
  std::int64_t rows_, cols_;
  Tensor values_, copy_, scratch_, int8_scales_;
  GradientSink gradient_;
  bool trainable_, computes_int8_ = false, gradient_on_demand_ = false;
  int uses_ = 0;  // of the scratch matrix
  std::uint64_t version_ = 0, copy_version_ = 0, int8_version_ = 0;
  std::shared_ptr<Storage> int8_copy_;
  Int8Matrix int8_;
};

enum class FileLayout {
  same,        // as stored here, [out, in]
  transposed,  // the file holds [in, out] (GPT-2's Conv1D)
};

enum class InitKind { normal, uniform, zeros, ones };

struct Init {
  InitKind kind = InitKind::normal;
  double deviation = 0.02;  // of normal; the bound of uniform
};

enum class ParameterRole {
  base,
  lora,  // an A or a B
  copy,  // the trained copy of a base parameter
};

class Parameter {
 public:
  std::string name;                 // Hugging Face's tensor name
  std::int64_t rows = 1, cols = 1;  // [out, in]; a vector is [1, n]
  bool vector = false;              // one-dimensional in files
  FileLayout layout = FileLayout::same;
  Init init;
  bool decay = true;  // weight decay applies (not to norms and biases)
  ModuleKind kind = ModuleKind::linear;

  // Where it lives; set when it is added to a list.
  std::shared_ptr<ParameterStorage> storage;
  std::int64_t begin = 0;  // first row (of a matrix) or column (of a vector) in the storage
  ParameterRole role = ParameterRole::base;
  bool trained = false;

  std::int64_t numel() const { return rows * cols; }
  bool quantized() const { return !storage->values().defined(); }  // then values() is no view
  bool trainable() const { return trained; }
  std::string module() const;                                 // the name without ".weight" or ".bias"
  View values() const { return part_of(storage->values()); }  // f32 or bf16
  View gradient() const { return part_of(storage->gradient()->tensor()); }  // trainable ones
  View bf16_copy() const;                                                   // data == nullptr without a copy
  std::vector<std::int64_t> file_shape() const;
  // Rows [first, first + out.rows), whatever form is kept; out f32 or bf16.
  void read_rows(Context& context, std::int64_t first, View out) const;
  // Sets rows [first, first + values.rows) (of a vector: all) from f32 or bf16, and where floats are kept
  // from f16, in the form that is kept; quantises when that is quantised.
  void write(Context& context, ConstView values, std::int64_t first = 0) const;

 private:
  View part_of(const Tensor& whole) const;
};

// A module's A and B; where its base parameter is.
struct LoraPair {
  std::string module;
  std::size_t base = 0, a = 0, b = 0;  // indices into all()
  std::int64_t rank = 0;
  double alpha = 0;
  float scale = 1, dropout = 0;
  bool embedding = false;  // A is stored as [V, rank]; in files [rank, V]
};

// A base parameter and its trained copy, which a tied head may share with the embedding.
struct FullCopy {
  std::string module;
  std::size_t base = 0, copy = 0;  // indices into all()
};

class ParameterList {
 public:
  ParameterList(Memory& memory, WeightPolicy policy) : memory_(memory), policy_(std::move(policy)) {}

  // One storage for the parts: matrices with equal cols stacked along rows, or vectors side by side. Parts
  // that the policy trains as copies get them: the weight is then the copies' while adapters are on.
  Weight* add(std::vector<Parameter> parts);
  // The base values of a parameter for a module of another name (a tied head), with that module's copy if
  // asked.
  Weight* share(const std::string& parameter, const std::string& module, ModuleKind kind);

  // The low-rank pair that the policy gives a module, without its parameters; nullptr: none.
  struct LoraPlan {
    std::int64_t rank;
    double alpha;
    float scale, dropout;
  };
  std::optional<LoraPlan> plan_lora(const std::string& module, ModuleKind kind);
  // Adds As of equal cols as one storage, or one B.
  Weight* add_lora(std::vector<Parameter> parts);
  void add_pair(LoraPair pair) { pairs_.push_back(std::move(pair)); }
  // After everything was added: throws Error(usage) for names in the policy that named nothing, with those
  // that exist.
  void check_policy() const;

  const WeightPolicy& policy() const { return policy_; }
  const std::vector<Parameter>& all() const { return parameters_; }
  const std::vector<std::shared_ptr<ParameterStorage>>& storages() const { return storages_; }
  const Parameter* find(std::string_view name) const;
  std::size_t index_of(std::string_view name) const;  // throws Error(internal) when absent
  const std::vector<LoraPair>& pairs() const { return pairs_; }
  const std::vector<FullCopy>& copies() const { return copies_; }
  // Whether the copy's values are another module's, which comes before it.
  bool shares_copy(const FullCopy& copy) const;
  std::vector<CoverageRow> coverage() const;
  // The modules with low-rank pairs and those with copies: by their last name ("q_proj") where all of that
  // name are, else by the whole.
  struct Adapted {
    std::vector<std::string> lora, copies;
  };
  Adapted adapted_modules() const;
  std::int64_t numel() const;  // of the base
  std::int64_t trainable_numel() const;
  void allocate_gradients(bool on_demand = false);
  void reset_gradients();               // the next writes overwrite
  void free_gradients();                // of those on demand
  void reset_copies(Context& context);  // full copies become equal to their base

 private:
  bool trains_base(const std::string& name) const;
  Weight* add_with_role(std::vector<Parameter> parts, ParameterRole role, bool has_copies = false);

  struct Module {
    std::string name;
    ModuleKind kind;
    bool lora = false, copy = false;
  };
  Module& module(const std::string& name, ModuleKind kind);

  Memory& memory_;
  WeightPolicy policy_;
  std::vector<Parameter> parameters_;
  std::vector<std::shared_ptr<ParameterStorage>> storages_;
  std::vector<std::unique_ptr<Weight>> switched_;
  std::vector<LoraPair> pairs_;
  std::vector<FullCopy> copies_;
  std::vector<Module> modules_;  // in the order of their first parameter
};

// Fills a parameter from the stream (seed, name): independent of order, threads and other parameters.
void initialise(Context& context, const Parameter& parameter, std::uint64_t seed);

}  // namespace lode
