// Time per op, for the profile of a step.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <string_view>

#include "autograd/context.h"

namespace lode {

struct OpCost {
  double seconds = 0;
  std::int64_t calls = 0;
  double flops = 0;  // matrix FLOPs, where the op is a product
  double bytes = 0;  // least memory traffic, where it is a pass
};

class Profile {
 public:
  void add(std::string_view op, const OpCost& cost);
  const std::map<std::string, OpCost, std::less<>>& ops() const { return ops_; }
  void clear() { ops_.clear(); }

 private:
  std::map<std::string, OpCost, std::less<>> ops_;
};

// Times one op from construction to destruction when the context has a profile.
class OpTimer {
 public:
  OpTimer(Context& context, std::string_view op, double flops = 0, double bytes = 0)
      : profile_(context.profile), op_(op), flops_(flops), bytes_(bytes) {
    if (profile_ != nullptr) begin_ = std::chrono::steady_clock::now();
  }
  ~OpTimer();
  OpTimer(const OpTimer&) = delete;
  OpTimer& operator=(const OpTimer&) = delete;

 private:
  Profile* profile_;
  std::string_view op_;
  double flops_, bytes_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace lode
