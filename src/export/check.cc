#include "export/check.h"

#include <algorithm>
#include <cmath>

#include "infer/generate.h"

namespace lode {
namespace {

// log of the sum of exponentials, in f64.
double log_sum_exp(const std::vector<float>& logits) {
  const double top = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
  return top + std::log(sum);
}

double divergence(const std::vector<float>& p, const std::vector<float>& q) {
  const double norm_p = log_sum_exp(p), norm_q = log_sum_exp(q);
  double total = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double log_p = static_cast<double>(p[i]) - norm_p, log_q = static_cast<double>(q[i]) - norm_q;
    total += std::exp(log_p) * (log_p - log_q);
  }
  return total;
}

// The larger one; a NaN stays.
double worse(double a, double b) {
  return a >= b || std::isnan(a) ? a : b;
}

}  // namespace

const std::vector<std::string>& default_probe_prompts() {
  static const std::vector<std::string> prompts = {"The capital of France is",
                                                   "Water boils at a temperature of",
                                                   "def fibonacci(n):\n    ", "中国的首都是", "1, 2, 3, 4,"};
  return prompts;
}

std::vector<Probe> run_probes(Context& context, Decoder& decoder, const Tokenizer& tokenizer,
                              const std::vector<std::string>& prompts, std::int64_t new_tokens) {
  std::vector<Probe> probes;
  for (const std::string& prompt : prompts) {
    Probe probe{prompt, tokenizer.encode(prompt, {.add_special_tokens = true})};
    const auto count = static_cast<std::int32_t>(probe.tokens.size());
    if (count == 0 || count + new_tokens > decoder.spec().max_positions) continue;
    const std::int32_t length[] = {count};
    const std::int64_t sample[] = {0};
    const Batch batch(probe.tokens, std::vector<std::int32_t>(probe.tokens.size(), kIgnoreLabel),
                      std::vector<float>(probe.tokens.size(), 0.0f), Segments(length, sample, count));
    const Tensor logits = decoder.last_logits(context, decoder.forward(context, batch));
    const float* row = logits.view().row<float>(0);
    probe.logits.assign(row, row + logits.cols());
    GenerateOptions options;
    options.sampling.temperature = 0;
    options.max_new_tokens = new_tokens;
    probe.greedy = generate_after(context, decoder, tokenizer, probe.tokens, options).tokens;
    probes.push_back(std::move(probe));
  }
  return probes;
}

ProbeComparison compare_probes(const std::vector<Probe>& expected, const std::vector<Probe>& found) {
  ProbeComparison result;
  result.same_tokens = expected.size() == found.size();
  for (std::size_t i = 0; i < std::min(expected.size(), found.size()); ++i) {
    const Probe &a = expected[i], &b = found[i];
    if (a.tokens != b.tokens || a.logits.size() != b.logits.size()) {
      result.same_tokens = false;
      continue;
    }
    double largest = 0, error = 0;
    for (std::size_t k = 0; k < a.logits.size(); ++k) {
      largest = std::max(largest, std::abs(static_cast<double>(a.logits[k])));
      error = worse(error, std::abs(static_cast<double>(a.logits[k]) - static_cast<double>(b.logits[k])));
    }
    result.max_logit_error = worse(result.max_logit_error, largest > 0 ? error / largest : error);
    result.max_divergence = worse(result.max_divergence, divergence(a.logits, b.logits));
    const auto [end, other] = std::ranges::mismatch(a.greedy, b.greedy);
    result.greedy_equal += end - a.greedy.begin();
    result.greedy_tokens += static_cast<std::int64_t>(std::max(a.greedy.size(), b.greedy.size()));
  }
  return result;
}

Json ProbeComparison::to_json() const {
  return Json::object({{"max_logit_error", max_logit_error},
                       {"max_divergence", max_divergence},
                       {"greedy_tokens", greedy_tokens},
                       {"greedy_equal", greedy_equal},
                       {"same_tokens", same_tokens}});
}

}  // namespace lode
