// Evaluation: token-weighted loss over a data set, independent of batch size.
#pragma once

#include <string>

#include "data/loader.h"
#include "nn/decoder.h"

namespace lode {

struct EvalResult {
  double loss = 0;            // mean over target tokens, nats
  double perplexity = 0;      // exp(loss)
  double bits_per_byte = 0;   // sum of losses / ln 2 / text bytes of the targets; NaN when bytes are unknown
  double token_accuracy = 0;  // share of targets with the largest logit
  std::int64_t tokens = 0, samples = 0, bytes = 0;
  double seconds = 0;
};

// The context must have no tape. tokens_per_batch bounds memory, not the result.
EvalResult evaluate(Context& context, Decoder& decoder, const std::shared_ptr<const Rows>& rows,
                    std::int64_t tokens_per_batch);

}  // namespace lode
