#include "infer/sampling.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"

namespace lode {

void check_sampling(const SamplingOptions& o) {
  if (!(o.temperature >= 0 && o.temperature < INFINITY))
    fail(ErrorKind::usage, "temperature is {}; expected 0 or more", o.temperature);
  if (o.top_k < 0) fail(ErrorKind::usage, "top_k is {}; expected 0 (off) or more", o.top_k);
  if (!(o.top_p > 0 && o.top_p <= 1))
    fail(ErrorKind::usage, "top_p is {}; expected a number in (0, 1]", o.top_p);
  if (!(o.repetition_penalty > 0 && o.repetition_penalty < INFINITY)) {
    fail(ErrorKind::usage, "repetition_penalty is {}; expected a positive number", o.repetition_penalty);
  }
}

Sampler::Sampler(const SamplingOptions& options) : options_(options), rng_(options.seed, "sampling") {
  check_sampling(options);
}

std::int32_t Sampler::next(std::span<const float> logits, std::span<const std::int32_t> seen) {
  LODE_ASSERT(!logits.empty());
  for (const float logit : logits) {
    // Also: an order of candidates with a NaN among them is none.
    if (!(logit < INFINITY))
      fail(ErrorKind::data, "the model's logits are not finite: its weights are damaged or diverged");
  }
  candidates_.resize(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) candidates_[i] = {logits[i], static_cast<std::int32_t>(i)};
  if (options_.repetition_penalty != 1) {
    const auto penalty = static_cast<float>(options_.repetition_penalty);
    for (const std::int32_t token : seen) {
      // Each token once, however often it was seen: the original logit decides.
      const float logit = logits[static_cast<std::size_t>(token)];
      candidates_[static_cast<std::size_t>(token)].logit = logit > 0 ? logit / penalty : logit * penalty;
    }
  }
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  };
  if (options_.temperature == 0) return std::ranges::min_element(candidates_, likelier)->token;

  std::size_t kept = candidates_.size();
  if (options_.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(options_.top_k));
  if (kept < candidates_.size()) {
    std::ranges::nth_element(candidates_, candidates_.begin() + static_cast<std::ptrdiff_t>(kept - 1),
                             likelier);
    candidates_.resize(kept);
  }
  if (options_.top_p < 1) std::ranges::sort(candidates_, likelier);
  const auto top = static_cast<double>(std::ranges::min_element(candidates_, likelier)->logit);
  std::vector<double> weight(candidates_.size());
  double total = 0;
  for (std::size_t i = 0; i < weight.size(); ++i) {
    weight[i] = std::exp((static_cast<double>(candidates_[i].logit) - top) / options_.temperature);
    total += weight[i];
  }
  if (options_.top_p < 1) {
    double sum = 0;
    std::size_t count = 0;
    while (count < weight.size() && sum < options_.top_p * total) sum += weight[count++];
    weight.resize(count);
    total = sum;
  }
  double point = rng_.next_uniform() * total;
  for (std::size_t i = 0; i < weight.size(); ++i) {
    point -= weight[i];
    if (point < 0) return candidates_[i].token;
  }
  // Rounding has left a rest: the last that is possible at all.
  std::size_t last = weight.size() - 1;
  while (last > 0 && weight[last] == 0) --last;
  return candidates_[last].token;
}

}  // namespace lode
