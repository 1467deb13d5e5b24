#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/profile.h"
#include "core/format.h"
#include "core/rng.h"
#include "kernels/elementwise.h"

namespace lode {

double gradient_squares(Context& context, const ParameterList& parameters, ParameterStorage& storage) {
  const auto is_part = [&](const Parameter& parameter) { return parameter.storage.get() == &storage; };
  const bool whole = std::ranges::all_of(parameters.all(), [&](const Parameter& parameter) {
    return !is_part(parameter) || parameter.trainable();
  });
  const View all = storage.gradient()->tensor().view();
  OpTimer timer(context, "gradient norm", 0, static_cast<double>(all.numel()) * 4);
  if (whole) return sum_of_squares(context.kernel, all);
  double total = 0;
  for (const Parameter& parameter : parameters.all()) {
    if (is_part(parameter) && parameter.trainable())
      total += sum_of_squares(context.kernel, parameter.gradient());
  }
  return total;
}

double gradient_norm(Context& context, const ParameterList& parameters) {
  double total = 0;
  for (const auto& storage : parameters.storages()) {
    if (storage->gradient() != nullptr) total += gradient_squares(context, parameters, *storage);
  }
  return std::sqrt(total);
}

float clip_factor(double norm, double max_norm) {
  return max_norm <= 0 ? 1.0f : static_cast<float>(std::min(1.0, max_norm / (norm + 1e-6)));
}

namespace {

void add_compensation(Context& context, const Parameter& parameter, std::vector<Tensor>& state) {
  state.emplace_back(context.memory, MemoryTag::optimizer, DType::bf16, parameter.rows, parameter.cols);
  if (!state.back().was_zero()) fill(context.kernel, state.back().view(), 0.0f);
}

}  // namespace

void Optimizer::prepare(Context&, ParameterList&, std::vector<std::vector<Tensor>>&, std::int64_t) const {}

ParameterUpdater::ParameterUpdater(Context& context, ParameterList& parameters,
                                   std::unique_ptr<Optimizer> optimizer, WeightRounding rounding,
                                   std::unique_ptr<StateStore> store)
    : parameters_(parameters),
      optimizer_(std::move(optimizer)),
      rounding_(rounding),
      store_(std::move(store)),
      states_(parameters.all().size()) {
  if (store_ && !optimizer_->has_state_at_start()) {
    fail(ErrorKind::usage,
         "optim_offload_dir: this optimizer keeps the state of a few parameters alone and has nothing to "
         "offload");
  }
  for (std::size_t i = 0; i < states_.size() && optimizer_->has_state_at_start(); ++i) {
    if (!parameters.all()[i].trainable()) continue;
    std::vector<Tensor> state = initial_state(context, i);
    for (const Tensor& tensor : state) stored_bytes_ += tensor.bytes();
    if (!store_) states_[i] = std::move(state);
  }
  prepare(context);
}

std::vector<Tensor> ParameterUpdater::initial_state(Context& context, std::size_t i) const {
  const Parameter& parameter = parameters_.all()[i];
  std::vector<Tensor> state = optimizer_->init_one(context, parameter);
  if (compensated(parameter)) add_compensation(context, parameter, state);
  return state;
}

std::vector<Tensor> ParameterUpdater::load_state(Context& context, std::size_t i) {
  if (!store_ || !parameters_.all()[i].trainable()) return states_[i];
  return store_->has(i) ? store_->take(context, i) : initial_state(context, i);
}

void ParameterUpdater::keep_state(std::size_t i, std::vector<Tensor> state) {
  if (store_) {
    if (!state.empty()) store_->put(i, std::move(state));
  } else {
    states_[i] = std::move(state);
  }
}

// The parameter that came behind this one in the step before is likely to do so again.
void ParameterUpdater::read_ahead(Context& context, std::size_t i) {
  order_.push_back(i);
  const std::size_t at = order_.size() - 1;
  if (at + 1 < last_order_.size() && last_order_[at] == i) store_->read_ahead(context, last_order_[at + 1]);
}

bool ParameterUpdater::compensated(const Parameter& parameter) const {
  return rounding_ == WeightRounding::kahan && parameter.trainable() &&
         parameter.storage->values().dtype() == DType::bf16;
}

std::vector<std::string> ParameterUpdater::state_names(std::size_t i) const {
  const Parameter& parameter = parameters_.all()[i];
  std::vector<std::string> names = optimizer_->state_names(parameter);
  if (compensated(parameter)) names.push_back("compensation");
  return names;
}

// The optimizer's states and, behind them, the compensations.
void ParameterUpdater::prepare(Context& context) {
  optimizer_->prepare(context, parameters_, states_, time_ + 1);
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const Parameter& parameter = parameters_.all()[i];
    if (!compensated(parameter) || states_[i].size() == state_names(i).size()) continue;
    if (states_[i].empty()) continue;  // it rests, or is in the store
    add_compensation(context, parameter, states_[i]);
  }
}

void ParameterUpdater::step(Context& context, double learning_rate, float grad_scale,
                            const BeforeUpdate& before_update) {
  const StepArguments arguments = begin(learning_rate, grad_scale);
  for (std::size_t i = 0; i < parameters_.all().size(); ++i) update(context, i, arguments, before_update);
  end(context);
}

void ParameterUpdater::update(Context& context, std::size_t i, const StepArguments& arguments,
                              const BeforeUpdate& before_update) {
  const Parameter& parameter = parameters_.all()[i];
  if (!parameter.trainable() || parameter.storage->gradient() == nullptr) return;
  if (before_update) before_update(i);
  StepArguments own = arguments;
  own.weight = {parameter.values(), parameter.bf16_copy()};
  std::vector<Tensor> state = load_state(context, i);
  if (store_) read_ahead(context, i);
  if (compensated(parameter)) {
    own.weight.compensation = state.back().view();
  } else if (own.weight.values.dtype == DType::bf16) {
    own.weight.key = make_key(context.seed, format("rounding/{}/{}", arguments.time, parameter.name));
  }
  optimizer_->step_one(context, parameter, state, own);
  keep_state(i, std::move(state));
}

void ParameterUpdater::end(Context& context) {
  for (const auto& storage : parameters_.storages()) {
    if (storage->gradient() != nullptr) storage->changed(storage->bf16_copy().defined());
  }
  last_order_ = std::exchange(order_, {});
  prepare(context);
}

void ParameterUpdater::set_time(Context& context, std::int64_t time) {
  time_ = time;
  prepare(context);
}

std::size_t ParameterUpdater::state_bytes() const {
  if (store_) return stored_bytes_;
  std::size_t bytes = 0;
  for (const auto& state : states_) {
    for (const Tensor& tensor : state) bytes += tensor.bytes();
  }
  return bytes;
}

}  // namespace lode
