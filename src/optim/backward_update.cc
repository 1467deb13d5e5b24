#include "optim/backward_update.h"

#include <cmath>
#include <utility>

namespace lode {

BackwardUpdate::BackwardUpdate(ParameterUpdater& updater, ParameterList& parameters, double learning_rate,
                               ParameterUpdater::BeforeUpdate before_update)
    : updater_(updater),
      parameters_(parameters),
      learning_rate_(learning_rate),
      before_update_(std::move(before_update)),
      squares_(parameters.storages().size(), 0.0),
      done_(parameters.storages().size(), false) {}

void BackwardUpdate::gradient_final(Context& context, GradientSink& sink) {
  const auto& storages = parameters_.storages();
  for (std::size_t k = 0; k < storages.size(); ++k) {
    if (storages[k]->gradient() == &sink) return update(context, k);
  }
}

void BackwardUpdate::update(Context& context, std::size_t k) {
  if (done_[k]) return;
  done_[k] = true;
  ParameterStorage& storage = *parameters_.storages()[k];
  GradientSink& sink = *storage.gradient();
  if (!stopped_) {
    if (sink.stale()) sink.adding(context);
    squares_[k] = gradient_squares(context, parameters_, storage);
    stopped_ = !std::isfinite(squares_[k]);
  }
  const auto& all = parameters_.all();
  for (std::size_t i = 0; i < all.size() && !stopped_; ++i) {
    if (all[i].storage.get() != &storage) continue;
    if (!arguments_) arguments_ = updater_.begin(learning_rate_, 1.0f);
    updater_.update(context, i, *arguments_, before_update_);
  }
  sink.free();
}

BackwardUpdate::Result BackwardUpdate::finish(Context& context) {
  double total = 0;
  for (std::size_t k = 0; k < squares_.size(); ++k) {
    if (parameters_.storages()[k]->gradient() != nullptr) update(context, k);
    total += squares_[k];
  }
  if (arguments_) updater_.end(context);
  return {std::sqrt(total), arguments_.has_value()};
}

}  // namespace lode
