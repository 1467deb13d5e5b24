#include "data/mixture.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "core/rng.h"

namespace lode {
namespace {

constexpr std::size_t kMostDocuments = 1u << 30;

void check(const std::vector<std::vector<std::int64_t>>& sets, const MixOptions& options) {
  if (!options.probabilities.empty() && options.probabilities.size() != sets.size()) {
    fail(ErrorKind::usage, "interleave_probs has {} values for {} data sets; give one for each",
         options.probabilities.size(), sets.size());
  }
  for (const double p : options.probabilities) {
    if (!(p > 0) || !std::isfinite(p))
      fail(ErrorKind::usage, "interleave_probs must be above 0, found {}", p);
  }
  for (std::size_t i = 0; i < sets.size(); ++i) {
    if (sets[i].empty()) fail(ErrorKind::data, "data set number {} of the mixture has no document", i + 1);
  }
}

}  // namespace

std::vector<std::int64_t> mix_documents(const std::vector<std::vector<std::int64_t>>& sets,
                                        const MixOptions& options, std::uint64_t seed) {
  std::vector<std::int64_t> order;
  if (options.mixing == Mixing::concat) {
    for (const auto& set : sets) order.insert(order.end(), set.begin(), set.end());
    return order;
  }
  check(sets, options);
  double sum = 0;
  for (const double p : options.probabilities) sum += p;
  Rng rng(seed, "mixture of data sets");
  std::vector<std::size_t> used(sets.size(), 0);
  std::size_t turn = 0, num_left = sets.size();
  for (;;) {
    std::size_t set = turn++ % sets.size();
    if (!options.probabilities.empty()) {
      double at = rng.next_uniform() * sum;
      for (set = 0; set + 1 < sets.size() && at >= options.probabilities[set]; ++set)
        at -= options.probabilities[set];
    }
    order.push_back(sets[set][used[set]++ % sets[set].size()]);
    if (order.size() > kMostDocuments) {
      fail(ErrorKind::usage,
           "interleave_over repeats the smaller data sets beyond {} documents; raise the "
           "smallest of interleave_probs",
           kMostDocuments);
    }
    if (used[set] != sets[set].size()) continue;
    --num_left;
    if (options.mixing == Mixing::interleave_under || num_left == 0) return order;
  }
}

}  // namespace lode
