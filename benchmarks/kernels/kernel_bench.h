// Shared by the kernel benchmarks: tensors, and figures against the machine's streaming bandwidth measured in
// the same run.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/parallel.h"
#include "core/tensor.h"
#include "kernels/kernel.h"

namespace lode::bench {

// One memory and context for all benchmarks of the program; all cores.
Memory& memory();
KernelContext& context();

// Bytes per second of y = a + b over arrays far larger than the caches, reads and writes counted once each.
// The best of several passes.
double stream_bandwidth();

// Values uniform in (-1, 1).
Tensor random_tensor(DType dtype, std::int64_t rows, std::int64_t cols);

// Calls run(set) for sets in turn, so that no call finds its operands in a cache; make(set) builds each once.
// `bytes` is what one call must read and write.
template <class Make, class Run>
void measure(benchmark::State& state, double bytes, Make make, Run run) {
  constexpr double kCold = 256e6;  // more than any cache
  const int count = std::max(1, static_cast<int>(kCold / bytes) + 1);
  using Set = decltype(make());
  std::vector<Set> sets;
  for (int i = 0; i < count; ++i) sets.push_back(make());
  std::size_t next = 0;
  for (auto _ : state) {
    run(sets[next]);
    next = (next + 1) % sets.size();
  }
  const auto calls = static_cast<double>(state.iterations());
  using benchmark::Counter;
  state.counters["GB/s"] = Counter(bytes * calls / 1e9, Counter::kIsRate);
  state.counters["of_stream"] = Counter(bytes * calls / stream_bandwidth(), Counter::kIsRate);
}

}  // namespace lode::bench
