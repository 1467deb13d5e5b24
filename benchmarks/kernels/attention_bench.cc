// Attention at head_dim 64: GFLOP/s of forward and forward + backward beside the peak of matrix products in
// the same run. Causal attention counts half its square: 2 * length^2 * head_dim a head and segment
// forward, 2.5 times that backward.
//   attention_bench [threads]
#include "kernels/attention.h"

#include <cmath>
#include <cstdlib>
#include <vector>

#include "bench.h"

using namespace lode;

namespace {

struct Setup {
  std::string name;
  DType dtype;
  std::int64_t heads, kv_heads, dim;
  std::vector<std::int32_t> lengths;
};

void run(KernelContext& context, Memory& memory, const Setup& s, double peak) {
  std::int32_t tokens = 0;
  double pairs = 0;
  std::vector<std::int64_t> samples;
  for (const std::int32_t length : s.lengths) {
    tokens += length;
    pairs += static_cast<double>(length) * length;
    samples.push_back(static_cast<std::int64_t>(samples.size()));
  }
  const Segments segments(s.lengths, samples, tokens);
  const auto wide = [&](std::int64_t heads) {
    return bench::random_tensor(memory, s.dtype, tokens, heads * s.dim);
  };
  const Tensor qkv = wide(s.heads + 2 * s.kv_heads), dqkv = wide(s.heads + 2 * s.kv_heads);
  const Tensor o = wide(s.heads), dout = wide(s.heads);
  const Tensor lse(memory, MemoryTag::activations, DType::f32, s.heads, tokens);
  const AttentionShape shape{s.heads, s.kv_heads, s.dim, 1.0f / std::sqrt(static_cast<float>(s.dim))};
  const std::int64_t q_cols = s.heads * s.dim, kv_cols = s.kv_heads * s.dim;
  const auto part = [&](const Tensor& x, int i) {
    return i == 0 ? x.view().slice_cols(0, q_cols) : x.view().slice_cols(q_cols + (i - 1) * kv_cols, kv_cols);
  };
  const AttentionForward forward{.shape = shape,
                                 .q = part(qkv, 0),
                                 .k = part(qkv, 1),
                                 .v = part(qkv, 2),
                                 .segments = &segments,
                                 .o = o.view(),
                                 .lse = lse.view()};
  const AttentionBackward backward{.shape = shape,
                                   .q = part(qkv, 0),
                                   .k = part(qkv, 1),
                                   .v = part(qkv, 2),
                                   .o = o.view(),
                                   .lse = lse.view(),
                                   .dout = dout.view(),
                                   .segments = &segments,
                                   .dq = part(dqkv, 0),
                                   .dk = part(dqkv, 1),
                                   .dv = part(dqkv, 2)};
  const double there = bench::best_time([&] { attention_forward(s.dtype, context, forward); });
  const double back = bench::best_time([&] { attention_backward(s.dtype, context, backward); });
  const double flops = 2e-9 * pairs * static_cast<double>(s.dim * s.heads);
  const auto share = [&](double gflops) {
    return format("{:6.0f} GFLOP/s {:3.0f} %", gflops, 100 * gflops / peak);
  };
  bench::print(format("{:<34} forward {}   backward {}   both {}", s.name, share(flops / there),
                      share(2.5 * flops / back), share(3.5 * flops / (there + back))));
}

}  // namespace

int main(int argc, char** argv) {
  Memory memory;
  Workspace workspace(memory);
  KernelContext context{argc > 1 ? std::atoi(argv[1]) : available_threads(), &workspace};
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const double peak = measure_matmul_peak(context, memory, dtype, true);
    bench::print(format("{}: peak {:.0f} GFLOP/s, {} threads", name_of(dtype), peak, context.threads));
    run(context, memory, {"12 heads x 64, 4 x 512", dtype, 12, 12, 64, std::vector<std::int32_t>(4, 512)},
        peak);
    run(context, memory, {"12 heads x 64, 2048", dtype, 12, 12, 64, {2048}}, peak);
    run(context, memory, {"12 heads x 64, 8192", dtype, 12, 12, 64, {8192}}, peak);
    if (dtype == DType::bf16) run(context, memory, {"4 heads x 64, 32768", dtype, 4, 4, 64, {32768}}, peak);
    run(context, memory, {"12/4 heads x 64, 2048", dtype, 12, 4, 64, {2048}}, peak);
    run(context, memory, {"6/1 heads x 64, 2048", dtype, 6, 1, 64, {2048}}, peak);
    run(context, memory, {"16/4 heads x 128, 2048", dtype, 16, 4, 128, {2048}}, peak);
    run(context, memory, {"6 heads x 64, 16 x 128", dtype, 6, 6, 64, std::vector<std::int32_t>(16, 128)},
        peak);
    std::vector<std::int32_t> mixed;
    for (std::int32_t i = 0; i < 20; ++i) mixed.push_back(20 + i * 53 % 180);
    run(context, memory, {"6 heads x 64, 20 x 20..200", dtype, 6, 6, 64, mixed}, peak);
  }
}
