#include "ops/embedding.h"

#include <algorithm>

#include "autograd/profile.h"
#include "kernels/embedding.h"

namespace lode {

Value embedding(Context& context, const Batch& batch, Weight& table, Weight* positions, float scale) {
  const auto& tokens = batch.tokens();
  for (const std::int32_t token : tokens) {
    if (token < 0 || token >= table.rows()) {
      fail(ErrorKind::data,
           "token id {} is outside the model's vocabulary of {}: the tokenizer does not fit the model", token,
           table.rows());
    }
  }
  const auto position_ids = batch.segments().positions();
  if (positions != nullptr && !position_ids.empty() &&
      *std::ranges::max_element(position_ids) >= positions->rows()) {
    fail(ErrorKind::usage, "a sample of {} tokens is longer than the model's {} positions: lower cutoff_len",
         *std::ranges::max_element(position_ids) + 1, positions->rows());
  }
  Tensor y = context.activation(batch.num_tokens(), table.cols());
  {
    OpTimer timer(context, "embedding", 0, static_cast<double>(y.bytes()) * 3);
    table.look_up(context, tokens, scale, false, y.view());
    if (positions != nullptr) positions->look_up(context, position_ids, 1.0f, true, y.view());
  }
  inspect(context, "embedding", y);
  const bool wants =
      table.gradient() != nullptr || (positions != nullptr && positions->gradient() != nullptr);
  Value out = make_value(context, std::move(y), wants);
  if (!out.wants_gradient()) return out;
  context.tape->record(context, "embedding", out.gradient,
                       [id = out.gradient, &batch, &table, positions, scale](Context& c, Tape& tape) {
                         const Tensor dy = tape.take_gradient(id);
                         OpTimer timer(c, "embedding backward", 0, static_cast<double>(dy.bytes()) * 3);
                         if (table.gradient() != nullptr) {
                           embedding_backward(dy.dtype(), c.kernel, batch.tokens(), dy.view(), scale,
                                              table.gradient()->adding(c));
                         }
                         if (positions != nullptr && positions->gradient() != nullptr) {
                           embedding_backward(dy.dtype(), c.kernel, batch.segments().positions(), dy.view(),
                                              1.0f, positions->gradient()->adding(c));
                         }
                       });
  context.tape->uses(context, {&table, positions});
  return out;
}

}  // namespace lode
