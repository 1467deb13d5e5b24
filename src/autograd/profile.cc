#include "autograd/profile.h"

namespace lode {

void Profile::add(std::string_view op, const OpCost& cost) {
  const auto found = ops_.find(op);
  OpCost& total = found == ops_.end() ? ops_[std::string(op)] : found->second;
  total.seconds += cost.seconds;
  total.calls += cost.calls;
  total.flops += cost.flops;
  total.bytes += cost.bytes;
}

OpTimer::~OpTimer() {
  if (profile_ == nullptr) return;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin_;
  profile_->add(op_, {elapsed.count(), 1, flops_, bytes_});
}

}  // namespace lode
