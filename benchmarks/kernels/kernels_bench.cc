// Kernels of a training step at 2,048 tokens of 768 channels (the 124M shape) unless a name says otherwise,
// in bf16.
#include <cmath>
#include <vector>

#include "core/rng.h"
#include "kernel_bench.h"
#include "kernels/activation.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/rotary.h"

namespace lode::bench {
namespace {

constexpr std::int64_t kT = 2048, kD = 768, kI = 3072, kV = 50304;
constexpr double kActivations = 2.0 * kT * kD;  // bytes of [T, D] in bf16

Tensor activations(std::int64_t cols = kD) {
  return random_tensor(DType::bf16, kT, cols);
}
Tensor vector(std::int64_t n = kD) {
  return random_tensor(DType::f32, 1, n);
}

struct Tensors {
  std::vector<Tensor> of;
  View operator[](std::size_t i) const { return of[i].view(); }
};

void stream(benchmark::State& state) {
  measure(
      state, 3.0 * 4.0 * (16 << 20),
      [] {
        return Tensors{{vector(16 << 20), vector(16 << 20), vector(16 << 20)}};
      },
      [](const Tensors& t) { add_inplace(DType::f32, context(), t[0], t[1]); });
}
BENCHMARK(stream)->UseRealTime()->Unit(benchmark::kMillisecond);

template <NormKind kind>
void norm_forward_bench(benchmark::State& state) {
  const Tensor weight = vector();
  const Tensor bias = vector();
  measure(
      state, 4.0 * kActivations,
      [] {
        return Tensors{{activations(), activations(), activations(), vector(kT), vector(kT)}};
      },
      [&](const Tensors& t) {
        norm_forward(
            DType::bf16, context(),
            {kind, 1e-5f, t[0], t[1], weight.view(),
             kind == NormKind::layer ? ConstView(bias.view()) : ConstView(), t[0], t[2], t[3], t[4]});
      });
}
BENCHMARK(norm_forward_bench<NormKind::rms>)->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(norm_forward_bench<NormKind::layer>)->UseRealTime()->Unit(benchmark::kMicrosecond);

template <NormKind kind>
void norm_backward_bench(benchmark::State& state) {
  const Tensor weight = vector(), dweight = vector(), dbias = vector();
  measure(
      state, 4.0 * kActivations,
      [] {
        return Tensors{{activations(), activations(), activations(), vector(kT), vector(kT)}};
      },
      [&](const Tensors& t) {
        norm_backward(DType::bf16, context(),
                      {kind, t[0], t[1], weight.view(), t[3], t[4], t[2], t[2], dweight.view(),
                       kind == NormKind::layer ? dbias.view() : View()});
      });
}
BENCHMARK(norm_backward_bench<NormKind::rms>)->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(norm_backward_bench<NormKind::layer>)->UseRealTime()->Unit(benchmark::kMicrosecond);

void rotary_bench(benchmark::State& state) {
  const Tensor cos = random_tensor(DType::f32, kT, 32), sin = random_tensor(DType::f32, kT, 32);
  std::vector<std::int32_t> positions;
  for (std::int32_t t = 0; t < kT; ++t) positions.push_back(t);
  measure(
      state, 2.0 * kActivations, [] { return Tensors{{activations()}}; },
      [&](const Tensors& t) {
        rotary_apply(DType::bf16, context(), {t[0], 12, 64, 64, cos.view(), sin.view(), positions, false});
      });
}
BENCHMARK(rotary_bench)->UseRealTime()->Unit(benchmark::kMicrosecond);

void swiglu_forward_bench(benchmark::State& state) {
  measure(
      state, 3.0 * 2.0 * kT * kI,
      [] {
        return Tensors{{activations(2 * kI), activations(kI)}};
      },
      [](const Tensors& t) { gated_forward(DType::bf16, context(), GateKind::silu, t[0], t[1]); });
}
BENCHMARK(swiglu_forward_bench)->UseRealTime()->Unit(benchmark::kMicrosecond);

void swiglu_backward_bench(benchmark::State& state) {
  measure(
      state, 5.0 * 2.0 * kT * kI,
      [] {
        return Tensors{{activations(kI), activations(2 * kI), activations(2 * kI)}};
      },
      [](const Tensors& t) { gated_backward(DType::bf16, context(), GateKind::silu, t[0], t[1], t[2]); });
}
BENCHMARK(swiglu_backward_bench)->UseRealTime()->Unit(benchmark::kMicrosecond);

template <GeluKind kind>
void gelu_forward_bench(benchmark::State& state) {
  measure(
      state, 2.0 * 2.0 * kT * kI,
      [] {
        return Tensors{{activations(kI), activations(kI)}};
      },
      [](const Tensors& t) { gelu_forward(DType::bf16, context(), kind, t[0], t[1]); });
}
BENCHMARK(gelu_forward_bench<GeluKind::erf>)->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(gelu_forward_bench<GeluKind::tanh>)->UseRealTime()->Unit(benchmark::kMicrosecond);

template <GeluKind kind>
void gelu_backward_bench(benchmark::State& state) {
  measure(
      state, 3.0 * 2.0 * kT * kI,
      [] {
        return Tensors{{activations(kI), activations(kI), activations(kI)}};
      },
      [](const Tensors& t) { gelu_backward(DType::bf16, context(), kind, t[0], t[1], t[2]); });
}
BENCHMARK(gelu_backward_bench<GeluKind::erf>)->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(gelu_backward_bench<GeluKind::tanh>)->UseRealTime()->Unit(benchmark::kMicrosecond);

// Ids with the frequencies of text: id k about 1 / (k + 1) as often as id 0.
std::vector<std::int32_t> text_ids() {
  Rng rng(1, "ids");
  std::vector<std::int32_t> ids;
  for (std::int64_t t = 0; t < kT; ++t) {
    ids.push_back(static_cast<std::int32_t>(std::pow(static_cast<double>(kV), rng.next_uniform())) - 1);
  }
  return ids;
}

void embedding_forward_bench(benchmark::State& state) {
  const std::vector<std::int32_t> ids = text_ids();
  const Tensor table = random_tensor(DType::bf16, kV, kD);
  measure(
      state, 2.0 * kActivations, [] { return Tensors{{activations()}}; },
      [&](const Tensors& t) {
        embedding_forward(DType::bf16, context(), ids, table.view(), 1.0f, false, t[0]);
      });
}
BENCHMARK(embedding_forward_bench)->UseRealTime()->Unit(benchmark::kMicrosecond);

void embedding_backward_bench(benchmark::State& state) {
  const std::vector<std::int32_t> ids = text_ids();
  const Tensor dtable = random_tensor(DType::f32, kV, kD);
  measure(
      state, 5.0 * kActivations, [] { return Tensors{{activations()}}; },
      [&](const Tensors& t) { embedding_backward(DType::bf16, context(), ids, t[0], 1.0f, dtable.view()); });
}
BENCHMARK(embedding_backward_bench)->UseRealTime()->Unit(benchmark::kMicrosecond);

void dropout_bench(benchmark::State& state) {
  const Segments segments(std::vector<std::int32_t>{kT}, std::vector<std::int64_t>{1}, kT);
  measure(
      state, 2.0 * kActivations, [] { return Tensors{{activations()}}; },
      [&](const Tensors& t) {
        dropout_apply(DType::bf16, context(), {t[0], t[0], 0.1f, {1, 2}, &segments});
      });
}
BENCHMARK(dropout_bench)->UseRealTime()->Unit(benchmark::kMicrosecond);

template <DType dtype>
void cross_entropy_bench(benchmark::State& state) {
  constexpr std::int64_t kC = 256;
  const std::vector<std::int32_t> labels(kC, 17);
  const std::vector<float> weight(kC, 1.0f);
  std::vector<float> loss(kC);
  std::vector<std::uint8_t> correct(kC);
  measure(
      state, 2.0 * size_of(dtype) * kC * kV, [] { return Tensors{{random_tensor(dtype, kC, kV)}}; },
      [&](const Tensors& t) {
        cross_entropy_rows(dtype, context(), {t[0], labels, weight, loss, correct, t[0]});
      });
}
BENCHMARK(cross_entropy_bench<DType::bf16>)->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(cross_entropy_bench<DType::f32>)->UseRealTime()->Unit(benchmark::kMicrosecond);

void add_inplace_bench(benchmark::State& state) {
  measure(
      state, 3.0 * kActivations,
      [] {
        return Tensors{{activations(), activations()}};
      },
      [](const Tensors& t) { add_inplace(DType::bf16, context(), t[0], t[1]); });
}
BENCHMARK(add_inplace_bench)->UseRealTime()->Unit(benchmark::kMicrosecond);

void sum_rows_bench(benchmark::State& state) {
  const Tensor out = vector();
  measure(
      state, kActivations, [] { return Tensors{{activations()}}; },
      [&](const Tensors& t) { sum_rows(DType::bf16, context(), t[0], true, out.view()); });
}
BENCHMARK(sum_rows_bench)->UseRealTime()->Unit(benchmark::kMicrosecond);

void sum_of_squares_bench(benchmark::State& state) {
  measure(
      state, 4.0 * (32 << 20), [] { return Tensors{{vector(32 << 20)}}; },
      [](const Tensors& t) { benchmark::DoNotOptimize(sum_of_squares(context(), t[0])); });
}
BENCHMARK(sum_of_squares_bench)->UseRealTime()->Unit(benchmark::kMillisecond);

void find_non_finite_bench(benchmark::State& state) {
  measure(
      state, 4.0 * (32 << 20), [] { return Tensors{{vector(32 << 20)}}; },
      [](const Tensors& t) { benchmark::DoNotOptimize(find_non_finite(context(), t[0])); });
}
BENCHMARK(find_non_finite_bench)->UseRealTime()->Unit(benchmark::kMillisecond);

void convert_bench(benchmark::State& state) {
  const std::int64_t n = 32 << 20;
  measure(
      state, 6.0 * n,
      [] {
        return Tensors{{vector(n), random_tensor(DType::bf16, 1, n)}};
      },
      [](const Tensors& t) { convert(context(), t[0], t[1]); });
}
BENCHMARK(convert_bench)->UseRealTime()->Unit(benchmark::kMillisecond);

void adamw_bench(benchmark::State& state) {
  const std::int64_t n = 124'000'000;
  const Tensor weight = vector(n), grad = vector(n), exp_avg = vector(n), exp_avg_sq = vector(n);
  fill(context(), exp_avg_sq.view(), 0.01f);
  const Tensor copy = random_tensor(DType::bf16, 1, n);
  measure(
      state, 30.0 * n, [] { return 0; },
      [&](int) {
        adamw_step(context(), {{weight.view(), copy.view()},
                               grad.view(),
                               exp_avg.view(),
                               exp_avg_sq.view(),
                               1e-4,
                               0.9,
                               0.999,
                               1e-8,
                               0.1,
                               0.5,
                               0.5,
                               1.0});
      });
}
BENCHMARK(adamw_bench)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lode::bench
