// What was asked, what was chosen and why, for every optimisation and substitution; and counters of what
// happened.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace lode {

struct Fact {
  std::string name, asked, chosen, why;
  bool substituted = false;  // chosen is not what was asked
};

// Thread-safe. A fact is made where its choice is made; made again under the same name it replaces the
// former.
class Facts {
 public:
  void set(Fact fact);
  std::vector<Fact> all() const;
  // Throws Error(usage) that lists every substitution, if there is one (`--strict`).
  void refuse_substitutions() const;

  void count(std::string_view counter, std::int64_t amount = 1);
  std::map<std::string, std::int64_t, std::less<>> counters() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Fact> facts_;
  std::map<std::string, std::int64_t, std::less<>> counters_;
};

}  // namespace lode
