#include "nn/parameter.h"

#include <algorithm>
#include <cstring>

#include "autograd/profile.h"
#include "core/parallel.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "nn/quantized.h"

namespace lode {
namespace {

constexpr std::int64_t kScaleGrain = 4096;  // rows, one cache line of each

// The base, or its trained copy while adapters are on.
class SwitchedWeight : public Weight {
 public:
  SwitchedWeight(Weight& base, Weight& copy) : base_(base), copy_(copy) {}

  std::int64_t rows() const override { return base_.rows(); }
  std::int64_t cols() const override { return base_.cols(); }
  ConstView acquire(Context& context, DType form) override {
    active_ = context.adapters ? &copy_ : &base_;
    return active_->acquire(context, form);
  }
  void release() override { active_->release(); }
  Int8Matrix int8_form(Context& context) override {
    return (context.adapters ? copy_ : base_).int8_form(context);
  }
  void look_up(Context& context, std::span<const std::int32_t> ids, float scale, bool add, View y) override {
    (context.adapters ? copy_ : base_).look_up(context, ids, scale, add, y);
  }
  GradientSink* gradient() override { return copy_.gradient(); }

 private:
  Weight &base_, &copy_;
  Weight* active_ = nullptr;
};

}  // namespace

ParameterStorage::ParameterStorage(Memory& memory, std::int64_t rows, std::int64_t cols, DType dtype,
                                   bool trainable)
    : memory_(memory),
      rows_(rows),
      cols_(cols),
      values_(memory, MemoryTag::weights, dtype, rows, cols),
      trainable_(trainable) {
  LODE_ASSERT(dtype == DType::f32 || dtype == DType::bf16);
}

ConstView ParameterStorage::acquire(Context& context, DType form) {
  if (form == values_.dtype()) return values_.view();
  if (form == DType::f32) return acquire_scratch(context, form);
  LODE_ASSERT(form == DType::bf16);
  if (!copy_.defined()) {
    copy_ = Tensor(memory_, MemoryTag::derived, DType::bf16, rows(), cols());
    copy_version_ = version_ - 1;
  }
  if (copy_version_ != version_) {
    convert(context.kernel, values_.view(), copy_.view());
    copy_version_ = version_;
  }
  return copy_.view();
}

ConstView ParameterStorage::acquire_scratch(Context& context, DType form) {
  if (uses_ == 0) {
    OpTimer timer(context, "weight to floats", 0, static_cast<double>(rows_ * cols_) * 4);
    scratch_ = Tensor(memory_, MemoryTag::workspace, form, rows_, cols_);
    read_rows(context, 0, scratch_.view());
  }
  LODE_ASSERT(scratch_.dtype() == form);
  ++uses_;
  return scratch_.view();
}

void ParameterStorage::release() {
  if (uses_ > 0 && --uses_ == 0) scratch_ = Tensor();
}

void ParameterStorage::look_up(Context& context, std::span<const std::int32_t> ids, float scale, bool add,
                               View y) {
  embedding_forward(y.dtype, context.kernel, ids, values_.view(), scale, add, y);
}

void ParameterStorage::read_rows(Context& context, std::int64_t first, View out) {
  convert(context.kernel, values_.view().slice_rows(first, out.rows), out);
}

void ParameterStorage::write_rows(Context& context, std::int64_t first, ConstView values) {
  convert(context.kernel, values, values_.view().slice_rows(first, values.rows));
}

void ParameterStorage::changed(bool copy_is_fresh) {
  ++version_;
  if (copy_is_fresh) copy_version_ = version_;
}

void ParameterStorage::compute_in_int8() {
  LODE_ASSERT(!trainable_);
  computes_int8_ = true;
}

const std::byte* ParameterStorage::int8_rows(Context& context) {
  constexpr std::int64_t kPanelRows = 256;
  const std::int64_t bytes = row_bytes(QuantFormat::int8, cols_), most = std::min(rows_, kPanelRows);
  if (int8_copy_ == nullptr)
    int8_copy_ = memory_.allocate(static_cast<std::size_t>(rows_ * bytes), MemoryTag::derived);
  Tensor panel(memory_, MemoryTag::workspace, DType::f32, most, cols_);
  for (std::int64_t first = 0; first < rows_; first += most) {
    const View rows = panel.view().slice_rows(0, std::min(most, rows_ - first));
    read_rows(context, first, rows);
    quantize_rows(context.kernel, QuantFormat::int8, rows, int8_copy_->data() + first * bytes);
  }
  return int8_copy_->data();
}

Int8Matrix ParameterStorage::int8_form(Context& context) {
  if (!computes_int8_ || trainable_) return {};
  if (int8_.data != nullptr && int8_version_ == version_) return int8_;
  OpTimer timer(context, "weight to int8", 0, static_cast<double>(rows_ * cols_));
  const std::byte* rows = int8_rows(context);
  const std::int64_t stride = row_bytes(QuantFormat::int8, cols_), head = stride - cols_;
  if (!int8_scales_.defined()) int8_scales_ = Tensor(memory_, MemoryTag::derived, DType::f32, 1, rows_);
  auto* scales = int8_scales_.view().row<float>(0);
  parallel_for(context.kernel.threads, rows_, kScaleGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      std::memcpy(scales + r, rows + r * stride, sizeof(float));
      scales[r] /= 127;  // a row's head is its largest magnitude
    }
  });
  int8_ = {reinterpret_cast<const std::int8_t*>(rows) + head, rows_, cols_, stride, scales};
  int8_version_ = version_;
  return int8_;
}

void ParameterStorage::allocate_gradient(bool on_demand) {
  gradient_on_demand_ = on_demand;
  if (trainable_ && !gradient_.tensor().defined()) gradient_.allocate(memory_, rows(), cols(), on_demand);
}

void ParameterStorage::train(bool on) {
  trainable_ = on;
  if (on) {
    allocate_gradient(gradient_on_demand_);
  } else {
    gradient_ = {};
  }
}

std::string Parameter::module() const {
  return name.substr(0, name.rfind('.'));
}

std::vector<std::int64_t> Parameter::file_shape() const {
  if (vector) return {numel()};
  if (layout == FileLayout::transposed) return {cols, rows};
  return {rows, cols};
}

View Parameter::part_of(const Tensor& whole) const {
  return vector ? whole.view().slice_cols(begin, cols) : whole.view().slice_rows(begin, rows);
}

View Parameter::bf16_copy() const {
  return storage->bf16_copy().defined() ? part_of(storage->bf16_copy()) : View{};
}

void Parameter::read_rows(Context& context, std::int64_t first, View out) const {
  if (vector) {
    convert(context.kernel, values(), out);
  } else {
    storage->read_rows(context, begin + first, out);
  }
}

void Parameter::write(Context& context, ConstView from, std::int64_t first) const {
  LODE_ASSERT(first >= 0 && first + from.rows <= rows && from.cols == cols);
  if (vector) {
    convert(context.kernel, from, values());
  } else {
    storage->write_rows(context, begin + first, from);
  }
  storage->changed(false);
}

Weight* ParameterList::add(std::vector<Parameter> parts) {
  const std::size_t first = parameters_.size();
  std::vector<Parameter> copies = parts;
  bool any = false;
  for (Parameter& part : copies) {
    part.trained = module(part.module(), part.kind).copy;
    any = any || part.trained;
    part.name.insert(part.module().size(), ".modules_to_save");
  }
  Weight* base = add_with_role(std::move(parts), ParameterRole::base, any);
  if (!any) return base;
  const std::size_t first_copy = parameters_.size();
  Weight* copy = add_with_role(std::move(copies), ParameterRole::copy);
  for (std::size_t i = 0; first_copy + i < parameters_.size(); ++i)
    copies_.push_back({parameters_[first + i].module(), first + i, first_copy + i});
  return switched_.emplace_back(std::make_unique<SwitchedWeight>(*base, *copy)).get();
}

Weight* ParameterList::share(const std::string& parameter, const std::string& name, ModuleKind kind) {
  const std::size_t base = index_of(parameter);
  ParameterStorage* weight = parameters_[base].storage.get();
  if (policy_.int8_products && !parameters_[base].trained) weight->compute_in_int8();
  Module& own = module(name, kind);
  const auto known = std::ranges::find(copies_, base, &FullCopy::base);
  if (known != copies_.end() && policy_.adapter->tied_copies) {
    own.copy = true;
    own.lora = false;
    const std::size_t copy = known->copy;
    copies_.push_back({name, base, copy});
    return switched_.emplace_back(std::make_unique<SwitchedWeight>(*weight, *parameters_[copy].storage))
        .get();
  }
  if (!own.copy) return weight;
  Parameter part = parameters_[base];
  part.name = name + ".modules_to_save.weight";
  part.kind = kind;
  part.trained = true;
  copies_.push_back({name, base, parameters_.size()});
  Weight* copy = add_with_role({std::move(part)}, ParameterRole::copy);
  return switched_.emplace_back(std::make_unique<SwitchedWeight>(*weight, *copy)).get();
}

Weight* ParameterList::add_lora(std::vector<Parameter> parts) {
  return add_with_role(std::move(parts), ParameterRole::lora);
}

Weight* ParameterList::add_with_role(std::vector<Parameter> parts, ParameterRole role, bool has_copies) {
  LODE_ASSERT(!parts.empty());
  const bool vectors = parts.front().vector;
  const bool multiplied = parts.front().kind == ModuleKind::linear || parts.front().kind == ModuleKind::head;
  const bool int8 = policy_.int8_products && multiplied && !vectors && role == ParameterRole::base;
  std::int64_t total = 0;
  bool trained = false, quantized = false;
  std::vector<QuantizedStorage::Band> bands;
  for (Parameter& part : parts) {
    LODE_ASSERT(part.vector == vectors && (vectors ? part.rows == 1 : part.cols == parts.front().cols));
    total += vectors ? part.cols : part.rows;
    part.role = role;
    if (role == ParameterRole::base) part.trained = trains_base(part.name);
    if (role == ParameterRole::lora) part.trained = true;
    trained = trained || part.trained;
    std::optional<QuantFormat> format;
    if (role == ParameterRole::base && !vectors && policy_.format)
      format = policy_.format(part.name, part.kind);
    quantized = quantized || format.has_value();
    bands.push_back({part.rows, format.value_or(policy_.frozen_dtype == DType::bf16 ? QuantFormat::bf16
                                                                                    : QuantFormat::f32)});
  }
  const std::int64_t rows = vectors ? 1 : total, cols = vectors ? total : parts.front().cols;
  const DType own = vectors || role == ParameterRole::lora ? DType::f32
                    : trained                              ? policy_.trained_dtype
                    : role == ParameterRole::base          ? policy_.frozen_dtype
                                                           : DType::f32;
  std::shared_ptr<ParameterStorage> storage;
  // An adapter's base is written to no file, so int8 rows can take the place of floats.
  if (int8 && !quantized && !has_copies && policy_.adapter) {
    quantized = true;
    for (auto& band : bands) band.format = QuantFormat::int8;
  }
  if (quantized && !trained) {
    storage = std::make_shared<QuantizedStorage>(memory_, cols, bands);
  } else {
    storage = std::make_shared<ParameterStorage>(memory_, rows, cols, own, trained);
  }
  if (int8 && !trained) storage->compute_in_int8();
  std::int64_t begin = 0;
  for (Parameter& part : parts) {
    part.storage = storage;
    part.begin = begin;
    begin += vectors ? part.cols : part.rows;
    parameters_.push_back(std::move(part));
  }
  storages_.push_back(storage);
  return storage.get();
}

const Parameter* ParameterList::find(std::string_view name) const {
  const auto found = std::ranges::find(parameters_, name, &Parameter::name);
  return found == parameters_.end() ? nullptr : &*found;
}

std::size_t ParameterList::index_of(std::string_view name) const {
  const auto found = std::ranges::find(parameters_, name, &Parameter::name);
  if (found == parameters_.end()) fail(ErrorKind::internal, "there is no parameter \"{}\"", name);
  return static_cast<std::size_t>(found - parameters_.begin());
}

std::int64_t ParameterList::numel() const {
  std::int64_t total = 0;
  for (const Parameter& parameter : parameters_) {
    if (parameter.role == ParameterRole::base) total += parameter.numel();
  }
  return total;
}

std::int64_t ParameterList::trainable_numel() const {
  std::int64_t total = 0;
  for (const Parameter& parameter : parameters_) total += parameter.trainable() ? parameter.numel() : 0;
  return total;
}

bool ParameterList::shares_copy(const FullCopy& copy) const {
  return !parameters_[copy.copy].name.starts_with(copy.module + ".");
}

void ParameterList::reset_gradients() {
  for (const auto& storage : storages_) {
    if (storage->gradient() != nullptr) storage->gradient()->reset();
  }
}

void ParameterList::free_gradients() {
  for (const auto& storage : storages_) {
    if (storage->gradient() != nullptr && storage->gradient()->on_demand()) storage->gradient()->free();
  }
}

void ParameterList::allocate_gradients(bool on_demand) {
  for (const auto& storage : storages_) storage->allocate_gradient(on_demand);
}

void ParameterList::reset_copies(Context& context) {
  for (const FullCopy& pair : copies_) {
    const Parameter& copy = parameters_[pair.copy];
    parameters_[pair.base].read_rows(context, 0, copy.values());
    copy.storage->changed(false);
  }
}

}  // namespace lode
