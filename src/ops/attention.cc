#include "ops/attention.h"

#include "autograd/profile.h"

namespace lode {
namespace {

struct Columns {
  std::int64_t q, kv;  // widths
  explicit Columns(const AttentionShape& shape)
      : q(shape.heads * shape.head_dim), kv(shape.kv_heads * shape.head_dim) {}
};

Value continue_cached(Context& context, const Value& qkv, const AttentionShape& shape, const Columns& columns,
                      const KvCache::Rows& cached) {
  OpTimer timer(context, "attention");
  Tensor o = context.activation(qkv.data.rows(), columns.q);
  attention_decode(o.dtype(), context.kernel,
                   {.shape = shape,
                    .q = qkv.data.view().slice_cols(0, columns.q),
                    .k = cached.k,
                    .v = cached.v,
                    .o = o.view()});
  return {std::move(o)};
}

void attend(Context& context, const Tensor& qkv, const Batch& batch, const AttentionShape& shape,
            const Tensor& o, const Tensor& lse) {
  const Columns columns(shape);
  const View all = qkv.view();
  OpTimer timer(context, "attention", attention_forward_flops(batch.segments(), shape));
  attention_forward(o.dtype(), context.kernel,
                    {.shape = shape,
                     .q = all.slice_cols(0, columns.q),
                     .k = all.slice_cols(columns.q, columns.kv),
                     .v = all.slice_cols(columns.q + columns.kv, columns.kv),
                     .segments = &batch.segments(),
                     .o = o.view(),
                     .lse = lse.view()});
}

}  // namespace

double attention_forward_flops(const Segments& segments, const AttentionShape& shape) {
  double squares = 0;
  for (const Segment& segment : segments.list()) {
    if (segment.padding) continue;
    const auto length = static_cast<double>(segment.length), window = static_cast<double>(shape.window);
    const double unseen = window > 0 && length > window ? length - window : 0;
    squares += length * length - unseen * unseen;
  }
  return 2.0 * squares * static_cast<double>(shape.heads * shape.head_dim);
}

Value attention(Context& context, const Value& qkv, const Batch& batch, const AttentionShape& shape,
                KvCache* cache, std::int64_t layer, SavePolicy policy,
                std::function<void(double flops)> recomputed) {
  const Columns columns(shape);
  const std::int64_t rows = qkv.data.rows();
  if (qkv.data.cols() != columns.q + 2 * columns.kv || rows != batch.num_tokens() ||
      shape.heads % shape.kv_heads != 0) {
    fail(ErrorKind::internal,
         "attention: qkv is [{}, {}] for {} heads, {} key/value heads of {} and {} tokens", rows,
         qkv.data.cols(), shape.heads, shape.kv_heads, shape.head_dim, batch.num_tokens());
  }
  if (cache != nullptr) {
    const auto positions = batch.segments().positions();
    if (batch.segments().list().size() != 1 || positions.front() != cache->length()) {
      fail(ErrorKind::internal, "attention: the batch does not continue the {} cached tokens",
           cache->length());
    }
    const auto cached = cache->append(context, layer, qkv.data.view().slice_cols(columns.q, columns.kv),
                                      qkv.data.view().slice_cols(columns.q + columns.kv, columns.kv));
    if (cache->length() != 0) return continue_cached(context, qkv, shape, columns, cached);
    // A prompt: the cache holds nothing else, so the packed form below computes the same.
  }
  const double flops = attention_forward_flops(batch.segments(), shape);
  Tensor o = context.activation(rows, columns.q);
  Tensor lse(context.memory, MemoryTag::activations, DType::f32, shape.heads, rows);
  attend(context, qkv.data, batch, shape, o, lse);
  inspect(context, "attention", o);

  Value out = make_value(context, o, qkv.wants_gradient());
  if (!out.wants_gradient()) return out;
  const Saved saved_lse = save(context, lse);
  if (policy == SavePolicy::recompute) {
    out.later = std::make_shared<RecomputedTensor>([saved = qkv.saved(context), saved_lse, &batch, shape,
                                                    flops, recomputed = std::move(recomputed)](Context& c) {
      const Tensor& in = saved.get(c);
      Tensor again = c.activation(in.rows(), shape.heads * shape.head_dim);
      attend(c, in, batch, shape, again, saved_lse.get(c));  // lse is written with what it holds
      if (recomputed) recomputed(flops);
      return again;
    });
  }
  context.tape->record(
      context, "attention", out.gradient,
      [id = out.gradient, qkv_id = qkv.gradient, shape, columns, flops, &batch,
       saved_qkv = qkv.saved(context), saved_o = out.saved(context), saved_lse](Context& c, Tape& tape) {
        const View in = saved_qkv.get(c).view();
        const Tensor& o = saved_o.get(c);
        const Tensor dout = tape.take_gradient(id);
        OpTimer timer(c, "attention backward", 2 * flops);
        Tensor dqkv = c.activation(in.rows, in.cols);
        const View d = dqkv.view();
        attention_backward(in.dtype, c.kernel,
                           {.shape = shape,
                            .q = in.slice_cols(0, columns.q),
                            .k = in.slice_cols(columns.q, columns.kv),
                            .v = in.slice_cols(columns.q + columns.kv, columns.kv),
                            .o = o.view(),
                            .lse = saved_lse.get(c).view(),
                            .dout = dout.view(),
                            .segments = &batch.segments(),
                            .dq = d.slice_cols(0, columns.q),
                            .dk = d.slice_cols(columns.q, columns.kv),
                            .dv = d.slice_cols(columns.q + columns.kv, columns.kv)});
        tape.add_gradient(c, qkv_id, std::move(dqkv));
      });
  return out;
}

}  // namespace lode
