#include "nn/parameter.h"

#include <algorithm>

#include "kernels/elementwise.h"

namespace lode {

ParameterStorage::ParameterStorage(Memory& memory, std::int64_t rows, std::int64_t cols, bool trainable)
    : memory_(memory), master_(memory, MemoryTag::weights, DType::f32, rows, cols), trainable_(trainable) {}

ConstView ParameterStorage::acquire(Context& context, DType form) {
  if (form == DType::f32) return master_.view();
  LODE_ASSERT(form == DType::bf16);
  if (!copy_.defined()) {
    copy_ = Tensor(memory_, MemoryTag::derived, DType::bf16, rows(), cols());
    copy_version_ = version_ - 1;
  }
  if (copy_version_ != version_) {
    convert(context.kernel, master_.view(), copy_.view());
    copy_version_ = version_;
  }
  return copy_.view();
}

void ParameterStorage::changed(bool copy_is_fresh) {
  ++version_;
  if (copy_is_fresh) copy_version_ = version_;
}

void ParameterStorage::allocate_gradient() {
  if (trainable_ && !gradient_.tensor().defined()) gradient_.allocate(memory_, rows(), cols());
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

Weight* ParameterList::add(std::vector<Parameter> parts) {
  LODE_ASSERT(!parts.empty());
  const bool vectors = parts.front().vector;
  std::int64_t total = 0;
  for (const Parameter& part : parts) {
    LODE_ASSERT(part.vector == vectors && (vectors ? part.rows == 1 : part.cols == parts.front().cols));
    total += vectors ? part.cols : part.rows;
  }
  auto storage = std::make_shared<ParameterStorage>(memory_, vectors ? 1 : total,
                                                    vectors ? total : parts.front().cols, trainable_);
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

std::int64_t ParameterList::numel() const {
  std::int64_t total = 0;
  for (const Parameter& parameter : parameters_) total += parameter.numel();
  return total;
}

void ParameterList::reset_gradients() {
  for (const auto& storage : storages_) {
    if (storage->gradient() != nullptr) storage->gradient()->reset();
  }
}

void ParameterList::allocate_gradients() {
  for (const auto& storage : storages_) storage->allocate_gradient();
}

}  // namespace lode
