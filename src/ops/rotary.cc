#include "ops/rotary.h"

#include <algorithm>

#include "autograd/profile.h"
#include "kernels/elementwise.h"

namespace lode {
namespace {

std::span<const std::int32_t> rows_of(const RotaryTable& table, const Batch& batch) {
  const Segments& segments = batch.segments();
  if (table.rows.empty()) return segments.positions();
  if (table.generation != segments.generation()) {
    fail(ErrorKind::internal, "rotary: the table's rows were made for other segments than the batch's");
  }
  return table.rows;
}

void rotate(Context& context, const Tensor& x, const Batch& batch, const RotaryTable& table,
            std::int64_t heads, std::int64_t head_dim, bool inverse) {
  const View part = x.view().slice_cols(0, heads * head_dim);
  OpTimer timer(context, "rotary", 0,
                2.0 * static_cast<double>(part.numel()) * static_cast<double>(size_of(x.dtype())));
  rotary_apply(x.dtype(), context.kernel,
               {.x = part,
                .heads = heads,
                .head_dim = head_dim,
                .rotary_dim = table.rotary_dim,
                .cos = table.cos.view(),
                .sin = table.sin.view(),
                .positions = rows_of(table, batch),
                .inverse = inverse});
}

}  // namespace

Value rotary(Context& context, Value x, const Batch& batch, const RotaryTable& table, std::int64_t heads,
             std::int64_t head_dim) {
  const auto positions = rows_of(table, batch);
  LODE_ASSERT(static_cast<std::int64_t>(positions.size()) == batch.num_tokens());
  LODE_ASSERT(x.data.rows() == batch.num_tokens() && x.data.cols() >= heads * head_dim);
  if (!positions.empty() && *std::ranges::max_element(positions) >= table.cos.rows()) {
    fail(ErrorKind::internal, "rotary: position {} is beyond the table of {}",
         *std::ranges::max_element(positions), table.cos.rows());
  }
  rotate(context, x.data, batch, table, heads, head_dim, false);
  if (!x.wants_gradient()) return x;
  Value out = make_value(context, x.data, true);
  context.tape->record(
      context, "rotary", out.gradient,
      [id = out.gradient, x_id = x.gradient, &table, &batch, heads, head_dim](Context& c, Tape& tape) {
        Tensor gradient = tape.take_gradient(id);
        if (!gradient.unique()) {
          Tensor own = c.activation(gradient.rows(), gradient.cols());
          convert(c.kernel, gradient.view(), own.view());
          gradient = std::move(own);
        }
        rotate(c, gradient, batch, table, heads, head_dim, true);
        tape.add_gradient(c, x_id, std::move(gradient));
      });
  return out;
}

}  // namespace lode
