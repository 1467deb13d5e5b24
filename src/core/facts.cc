#include "core/facts.h"

#include <algorithm>

#include "core/fail.h"

namespace lode {

void Facts::set(Fact fact) {
  std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(facts_, fact.name, &Fact::name);
  if (found == facts_.end()) {
    facts_.push_back(std::move(fact));
  } else {
    *found = std::move(fact);
  }
}

std::vector<Fact> Facts::all() const {
  std::lock_guard lock(mutex_);
  return facts_;
}

void Facts::refuse_substitutions() const {
  std::string list;
  for (const Fact& fact : all()) {
    if (!fact.substituted) continue;
    list += format("\n  {}: asked {}, chosen {} ({})", fact.name, fact.asked, fact.chosen, fact.why);
  }
  if (!list.empty()) {
    fail(ErrorKind::usage,
         "strict: what was asked would be substituted:{}\nask for what is available, or drop strict", list);
  }
}

void Facts::count(std::string_view counter, std::int64_t amount) {
  std::lock_guard lock(mutex_);
  const auto found = counters_.find(counter);
  if (found == counters_.end()) {
    counters_.emplace(counter, amount);
  } else {
    found->second += amount;
  }
}

std::map<std::string, std::int64_t, std::less<>> Facts::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace lode
