#include "train/evaluate.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <numbers>

namespace lode {

EvalResult evaluate(Context& context, Decoder& decoder, const std::shared_ptr<const Rows>& rows,
                    std::int64_t tokens_per_batch) {
  LODE_ASSERT(context.tape == nullptr);
  const auto begin = std::chrono::steady_clock::now();
  const EvalBatches batches(rows, tokens_per_batch);
  const bool was_training = std::exchange(context.training, false);
  // Evaluations and steps must not need what the other's regions leave: each is planned by itself.
  context.kernel.workspace->release();
  EvalResult result;
  double sum = 0;
  std::int64_t correct = 0;
  for (std::int64_t i = 0; i < batches.size(); ++i) {
    const EvalBatch eval = batches.make(i);
    const TokenLosses losses = decoder.loss(context, eval.batch, 1.0f);
    sum += losses.sum;
    correct += losses.num_correct;
    result.tokens += losses.num_targets;
    result.bytes += eval.num_target_bytes;
    for (const Segment& segment : eval.batch.segments().list()) result.samples += segment.padding ? 0 : 1;
  }
  context.training = was_training;
  context.kernel.workspace->release();
  const double tokens = static_cast<double>(result.tokens);
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  result.loss = result.tokens == 0 ? kNone : sum / tokens;
  result.perplexity = std::exp(result.loss);
  result.token_accuracy = result.tokens == 0 ? kNone : static_cast<double>(correct) / tokens;
  result.bits_per_byte =
      result.bytes == 0 ? kNone : sum / std::numbers::ln2 / static_cast<double>(result.bytes);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace lode
