#include "kernel_bench.h"

#include <chrono>

#include "core/rng.h"
#include "kernels/elementwise.h"

namespace lode::bench {

Memory& memory() {
  static Memory memory;
  return memory;
}

KernelContext& context() {
  static Workspace workspace(memory());
  static KernelContext context{available_threads(), &workspace};
  return context;
}

double stream_bandwidth() {
  static const double best = [] {
    constexpr std::int64_t kElements = 24 << 20;
    const Tensor x = random_tensor(DType::f32, 1, kElements), y = random_tensor(DType::f32, 1, kElements);
    double least = 1e9;
    for (int pass = 0; pass < 40; ++pass) {
      const auto begin = std::chrono::steady_clock::now();
      add_inplace(DType::f32, context(), x.view(), y.view());
      least =
          std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    return 3.0 * static_cast<double>(y.bytes()) / least;
  }();
  return best;
}

Tensor random_tensor(DType dtype, std::int64_t rows, std::int64_t cols) {
  Tensor tensor(memory(), MemoryTag::program, dtype, rows, cols);
  // A short period is enough and makes set-up fast.
  constexpr std::size_t kPeriod = 4093;
  static const std::vector<float> values = [] {
    Rng rng(1, "bench");
    std::vector<float> v;
    for (std::size_t i = 0; i < kPeriod; ++i) v.push_back(static_cast<float>(2.0 * rng.next_uniform() - 1.0));
    return v;
  }();
  const View view = tensor.view();
  for (std::int64_t i = 0; i < view.numel(); ++i) {
    const float value = values[static_cast<std::size_t>(i) % kPeriod];
    if (dtype == DType::f32) {
      view.row<float>(0)[i] = value;
    } else {
      view.row<bf16>(0)[i] = to_bf16(value);
    }
  }
  return tensor;
}

}  // namespace lode::bench
