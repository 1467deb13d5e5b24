// Choosing the next token from logits. Order as in Hugging Face's generation: repetition penalty,
// temperature, top-k, top-p.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/rng.h"

namespace lode {

struct SamplingOptions {
  double temperature = 1;  // 0: the most likely token
  std::int64_t top_k = 0;  // 0: off
  double top_p = 1;        // the smallest set of likely tokens with at least this probability
  double repetition_penalty =
      1;  // logits of tokens seen are divided (positive) or multiplied (negative) by it
  std::uint64_t seed = 0;
};

// Throws Error(usage) on options out of range.
void check_sampling(const SamplingOptions& options);

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options);
  // `seen`: prompt and output so far.
  std::int32_t next(std::span<const float> logits, std::span<const std::int32_t> seen);

 private:
  struct Candidate {
    float logit;
    std::int32_t token;
  };
  SamplingOptions options_;
  Rng rng_;
  std::vector<Candidate> candidates_;
};

}  // namespace lode
