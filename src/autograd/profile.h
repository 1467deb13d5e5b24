// Time per op, for the profile of a step, and each op's run by itself, for a trace.
#pragma once

#include <chrono>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/context.h"

namespace lode {

struct OpCost {
  double seconds = 0;
  std::int64_t calls = 0;
  double flops = 0;  // matrix FLOPs, where the op is a product
  double bytes = 0;  // least memory traffic
};

// The least time that the machine could take: the larger of FLOPs over the peak of products and bytes over
// the bandwidth of a stream, in seconds. 0 where neither is known.
double floor_seconds(const OpCost& cost, double peak_gflops, double bandwidth_gbytes);

class Profile {
 public:
  using Clock = std::chrono::steady_clock;

  struct Event {  // one run of an op, or a span that holds several; begin counts from when the profile was
                  // made
    std::string op;
    std::string scope;  // "layers.3.attention"
    double begin;
    OpCost cost;
    bool span;
  };

  // keep_events: each run is kept by itself, not only the sums.
  explicit Profile(bool keep_events = false) : keep_events_(keep_events) {}

  void add(std::string_view op, std::string_view scope, Clock::time_point begin, const OpCost& cost);
  // A stretch of time that is no op, such as a step or a wait for data; only in events.
  void add_span(std::string_view name, Clock::time_point begin, double seconds);

  const std::map<std::string, OpCost, std::less<>>& ops() const { return ops_; }
  const std::vector<Event>& events() const { return events_; }
  void clear();

 private:
  double since_start(Clock::time_point time) const {
    return std::chrono::duration<double>(time - start_).count();
  }

  bool keep_events_;
  Clock::time_point start_ = Clock::now();
  std::map<std::string, OpCost, std::less<>> ops_;
  std::vector<Event> events_;
};

// The events in the form that chrome://tracing and Perfetto read: steps and waits in one row, ops in another,
// with FLOPs and bytes as arguments.
std::string chrome_trace(std::span<const Profile::Event> events);

// Times one op from construction to destruction when the context has a profile.
class OpTimer {
 public:
  OpTimer(Context& context, std::string_view op, double flops = 0, double bytes = 0)
      : context_(context), profile_(context.profile), op_(op), flops_(flops), bytes_(bytes) {
    if (profile_ != nullptr) begin_ = Profile::Clock::now();
  }
  ~OpTimer();
  OpTimer(const OpTimer&) = delete;
  OpTimer& operator=(const OpTimer&) = delete;

 private:
  Context& context_;
  Profile* profile_;
  std::string_view op_;
  double flops_, bytes_;
  Profile::Clock::time_point begin_;
};

}  // namespace lode
