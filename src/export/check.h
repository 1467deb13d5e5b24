// Whether an exported model is the model: logits and greedy tokens on prompts, before and after.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "nn/decoder.h"
#include "text/tokenizer.h"

namespace lode {

struct Probe {
  std::string prompt;
  std::vector<std::int32_t> tokens;  // of the prompt
  std::vector<std::int32_t> greedy;  // the likeliest continuation
  std::vector<float> logits;         // after the prompt's last token
};

// Prompts in several languages and of code, for those who give none.
const std::vector<std::string>& default_probe_prompts();

// Runs the prompts that fit the model's context.
std::vector<Probe> run_probes(Context& context, Decoder& decoder, const Tokenizer& tokenizer,
                              const std::vector<std::string>& prompts, std::int64_t new_tokens);

struct ProbeComparison {
  double max_logit_error = 0;  // largest |difference| over the largest |logit| of the expected ones
  double max_divergence = 0;   // largest Kullback-Leibler divergence of the distributions, nats
  std::int64_t greedy_tokens = 0, greedy_equal = 0;  // compared up to the first difference of each prompt
  bool same_tokens = true;                           // both tokenizers cut the prompts alike
  Json to_json() const;
};
ProbeComparison compare_probes(const std::vector<Probe>& expected, const std::vector<Probe>& found);

}  // namespace lode
