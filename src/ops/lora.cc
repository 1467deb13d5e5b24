#include "ops/lora.h"

#include <cmath>

#include "autograd/profile.h"
#include "core/parallel.h"
#include "core/rng.h"
#include "kernels/matmul.h"

namespace lode {
namespace {

double flops_of(const LowRankPart& part, std::int64_t tokens) {
  return 2.0 * static_cast<double>(tokens) * static_cast<double>(part.b->rows() * part.b->cols());
}

View columns_of_y(const LowRankPart& part, const Tensor& y) {
  return y.view().slice_cols(part.begin, part.b->rows());
}
View columns_of_z(const LowRankPart& part, const Tensor& z) {
  return z.view().slice_cols(part.offset, part.b->cols());
}

void backward(Context& context, const Tensor& dy, const Tensor& z, const std::vector<LowRankPart>& parts,
              Tensor* dz) {
  for (const LowRankPart& part : parts) {
    OpTimer timer(context, "lora backward", 2 * flops_of(part, dy.rows()));
    if (part.b->gradient() != nullptr) {
      const auto target = part.b->gradient()->target(context);
      matmul(context.kernel, {.a = columns_of_y(part, dy),
                              .b = columns_of_z(part, z),
                              .transpose_a = true,
                              .accumulate = target.accumulate,
                              .c = target.view});
    }
    if (dz == nullptr) continue;
    const WeightUse b(context, *part.b, context.dtype);
    matmul(context.kernel, {.a = columns_of_y(part, dy), .b = b.view(), .c = columns_of_z(part, *dz)});
  }
}

template <class T>
void scale_row(T* row, std::int64_t count, float scale) {
  for (std::int64_t c = 0; c < count; ++c) {
    const float value = scale * to_f32(row[c]);
    if constexpr (std::is_same_v<T, float>) {
      row[c] = value;
    } else {
      row[c] = to_bf16(value);
    }
  }
}

void scale_in_place(Context& context, View z, const std::vector<ScaledPart>& parts) {
  OpTimer timer(context, "lora scale", 0, static_cast<double>(z.numel()) * 8);
  parallel_for(context.kernel.threads, z.rows, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      for (const ScaledPart& part : parts) {
        if (part.scale == 1.0f) continue;
        if (z.dtype == DType::f32) {
          scale_row(z.row<float>(t) + part.begin, part.count, part.scale);
        } else {
          scale_row(z.row<bf16>(t) + part.begin, part.count, part.scale);
        }
      }
    }
  });
}

template <class T>
void add_noise_row(T* row, std::int64_t cols, float size, PhiloxCounter counter, PhiloxKey key) {
  for (std::int64_t c = 0; c < cols; c += 4) {
    counter[0] = static_cast<std::uint32_t>(c / 4);
    const auto words = philox(counter, key);
    for (std::int64_t i = 0; i < 4 && c + i < cols; ++i) {
      // The upper 24 bits: exact in f32.
      const float uniform = static_cast<float>(words[static_cast<std::size_t>(i)] >> 8) * 0x1p-23f - 1.0f;
      const float value = to_f32(row[c + i]) + size * uniform;
      if constexpr (std::is_same_v<T, float>) {
        row[c + i] = value;
      } else {
        row[c + i] = to_bf16(value);
      }
    }
  }
}

}  // namespace

Value add_low_rank(Context& context, Value y, const Value& z, const std::vector<LowRankPart>& parts) {
  std::int64_t rows = 0, ranks = 0;
  for (const LowRankPart& part : parts) {
    rows = std::max(rows, part.begin + part.b->rows());
    ranks = std::max(ranks, part.offset + part.b->cols());
  }
  if (y.data.rows() != z.data.rows() || rows > y.data.cols() || ranks > z.data.cols()) {
    fail(ErrorKind::internal, "add_low_rank: y is [{}, {}], z [{}, {}], the parts need [{}] and [{}]",
         y.data.rows(), y.data.cols(), z.data.rows(), z.data.cols(), rows, ranks);
  }
  bool wants_db = false;
  for (const LowRankPart& part : parts) {
    OpTimer timer(context, "lora", flops_of(part, y.data.rows()));
    const WeightUse b(context, *part.b, context.dtype);
    matmul(context.kernel, {.a = columns_of_z(part, z.data),
                            .b = b.view(),
                            .transpose_b = true,
                            .accumulate = true,
                            .c = columns_of_y(part, y.data)});
    wants_db = wants_db || part.b->gradient() != nullptr;
  }
  inspect(context, "lora", y.data);
  if (context.tape == nullptr || !(wants_db || z.wants_gradient())) return y;
  // Runs before the nodes of y's own op, which take the gradient; when it has none, this node is the last.
  const bool last = !y.wants_gradient();
  if (last) y.gradient = context.tape->new_gradient();
  context.tape->record(
      context, "lora", y.gradient,
      [id = y.gradient, z_id = z.gradient, last, saved = z.saved(context), parts](Context& c, Tape& tape) {
        const Tensor dy = last ? tape.take_gradient(id) : tape.gradient(id);
        if (z_id == kNoGradient) return backward(c, dy, saved.get(c), parts, nullptr);
        const Tensor& z = saved.get(c);
        Tensor dz = c.activation(z.rows(), z.cols());
        backward(c, dy, z, parts, &dz);
        tape.add_gradient(c, z_id, std::move(dz));
      });
  for (const LowRankPart& part : parts) context.tape->uses(context, {part.b});
  return y;
}

Value scale_parts(Context& context, Value z, std::vector<ScaledPart> parts) {
  scale_in_place(context, z.data.view(), parts);
  if (!z.wants_gradient()) return z;
  // Shares the gradient id with the op below: scales the gradient where it lies.
  context.tape->record(context, "lora scale", z.gradient,
                       [id = z.gradient, parts = std::move(parts)](Context& c, Tape& tape) {
                         scale_in_place(c, tape.gradient(id).view(), parts);
                       });
  return z;
}

void add_embedding_noise(Context& context, Value& y, const Batch& batch, float alpha) {
  if (!context.training || alpha <= 0.0f) return;
  OpTimer timer(context, "embedding noise", 0, static_cast<double>(y.data.bytes()) * 2);
  const PhiloxKey key = make_key(context.seed, format("neftune/{}", context.step));
  const Segments& segments = batch.segments();
  const View data = y.data.view();
  parallel_for(context.kernel.threads, data.rows, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const auto at = static_cast<std::size_t>(t);
      const Segment& segment = segments.list()[static_cast<std::size_t>(segments.segment_of()[at])];
      if (segment.padding) continue;
      const auto sample = static_cast<std::uint64_t>(segment.sample);
      const PhiloxCounter counter{0, static_cast<std::uint32_t>(segments.positions()[at]),
                                  static_cast<std::uint32_t>(sample),
                                  static_cast<std::uint32_t>(sample >> 32)};
      const float size =
          alpha / std::sqrt(static_cast<float>(segment.length) * static_cast<float>(data.cols));
      if (data.dtype == DType::f32) {
        add_noise_row(data.row<float>(t), data.cols, size, counter, key);
      } else {
        add_noise_row(data.row<bf16>(t), data.cols, size, counter, key);
      }
    }
  });
}

}  // namespace lode
