#include "autograd/profile.h"

#include <algorithm>

#include "core/json.h"

namespace lode {

double floor_seconds(const OpCost& cost, double peak_gflops, double bandwidth_gbytes) {
  return std::max(peak_gflops > 0 ? cost.flops / (peak_gflops * 1e9) : 0.0,
                  bandwidth_gbytes > 0 ? cost.bytes / (bandwidth_gbytes * 1e9) : 0.0);
}

void Profile::add(std::string_view op, std::string_view scope, Clock::time_point begin, const OpCost& cost) {
  const auto found = ops_.find(op);
  OpCost& total = found == ops_.end() ? ops_[std::string(op)] : found->second;
  total.seconds += cost.seconds;
  total.calls += cost.calls;
  total.flops += cost.flops;
  total.bytes += cost.bytes;
  if (keep_events_) events_.push_back({std::string(op), std::string(scope), since_start(begin), cost, false});
}

void Profile::add_span(std::string_view name, Clock::time_point begin, double seconds) {
  if (keep_events_) events_.push_back({std::string(name), {}, since_start(begin), {seconds, 1}, true});
}

void Profile::clear() {
  ops_.clear();
  events_.clear();
}

OpTimer::~OpTimer() {
  if (profile_ == nullptr) return;
  const std::chrono::duration<double> elapsed = Profile::Clock::now() - begin_;
  profile_->add(op_, context_.scope, begin_, {elapsed.count(), 1, flops_, bytes_});
}

std::string chrome_trace(std::span<const Profile::Event> list) {
  Json events = Json::array();
  const auto name_row = [&](int row, const char* name) {
    events.push_back(Json::object({{"name", "thread_name"},
                                   {"ph", "M"},
                                   {"pid", 1},
                                   {"tid", row},
                                   {"args", Json::object({{"name", name}})}}));
  };
  name_row(1, "steps");
  name_row(2, "ops");
  for (const Profile::Event& event : list) {
    Json arguments = Json::object();
    if (!event.scope.empty()) arguments["where"] = event.scope;
    if (event.cost.flops > 0) {
      arguments["gflop"] = event.cost.flops / 1e9;
      arguments["gflop_per_s"] = event.cost.flops / event.cost.seconds / 1e9;
    }
    if (event.cost.bytes > 0) {
      arguments["mbytes"] = event.cost.bytes / 1e6;
      arguments["gbytes_per_s"] = event.cost.bytes / event.cost.seconds / 1e9;
    }
    // Times are in microseconds.
    events.push_back(Json::object({{"name", event.op},
                                   {"cat", event.span ? "step" : "op"},
                                   {"ph", "X"},
                                   {"pid", 1},
                                   {"tid", event.span ? 1 : 2},
                                   {"ts", event.begin * 1e6},
                                   {"dur", event.cost.seconds * 1e6},
                                   {"args", std::move(arguments)}}));
  }
  return Json::object({{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}).dump() + "\n";
}

}  // namespace lode
