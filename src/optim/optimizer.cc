#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "autograd/profile.h"
#include "kernels/elementwise.h"

namespace lode {

double gradient_norm(Context& context, const ParameterList& parameters) {
  double total = 0;
  std::set<const ParameterStorage*> partly;  // trained in some parts only: the others' gradients are no one's
  for (const Parameter& parameter : parameters.all()) {
    if (!parameter.trainable() && parameter.storage->gradient() != nullptr)
      partly.insert(parameter.storage.get());
  }
  for (const Parameter& parameter : parameters.all()) {
    if (parameter.trainable() && partly.contains(parameter.storage.get()))
      total += sum_of_squares(context.kernel, parameter.gradient());
  }
  for (const auto& storage : parameters.storages()) {
    if (storage->gradient() == nullptr || partly.contains(storage.get())) continue;
    OpTimer timer(context, "gradient norm", 0, static_cast<double>(storage->gradient()->tensor().bytes()));
    total += sum_of_squares(context.kernel, storage->gradient()->tensor().view());
  }
  return std::sqrt(total);
}

float clip_factor(double norm, double max_norm) {
  return max_norm <= 0 ? 1.0f : static_cast<float>(std::min(1.0, max_norm / (norm + 1e-6)));
}

void Optimizer::prepare(Context&, ParameterList&, std::vector<std::vector<Tensor>>&, std::int64_t) const {}

ParameterUpdater::ParameterUpdater(Context& context, ParameterList& parameters,
                                   std::unique_ptr<Optimizer> optimizer)
    : parameters_(parameters), optimizer_(std::move(optimizer)), states_(parameters.all().size()) {
  for (std::size_t i = 0; i < states_.size() && optimizer_->has_state_at_start(); ++i) {
    const Parameter& parameter = parameters.all()[i];
    if (parameter.trainable()) states_[i] = optimizer_->init_one(context, parameter);
  }
  optimizer_->prepare(context, parameters_, states_, 1);
}

void ParameterUpdater::step(Context& context, double learning_rate, float grad_scale,
                            const std::function<void(std::size_t)>& before_update) {
  const StepArguments arguments{learning_rate, ++time_, grad_scale};
  const auto& all = parameters_.all();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].trainable() || all[i].storage->gradient() == nullptr) continue;
    if (before_update) before_update(i);
    optimizer_->step_one(context, all[i], states_[i], arguments);
  }
  for (const auto& storage : parameters_.storages()) {
    if (storage->gradient() != nullptr) storage->changed(storage->bf16_copy().defined());
  }
  optimizer_->prepare(context, parameters_, states_, time_ + 1);
}

void ParameterUpdater::set_time(Context& context, std::int64_t time) {
  time_ = time;
  optimizer_->prepare(context, parameters_, states_, time_ + 1);
}

std::size_t ParameterUpdater::state_bytes() const {
  std::size_t bytes = 0;
  for (const auto& state : states_) {
    for (const Tensor& tensor : state) bytes += tensor.bytes();
  }
  return bytes;
}

}  // namespace lode
