// What the kernel benchmarks share: best-of timing and rows of a table beside the peak measured in the same
// run.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "core/format.h"
#include "core/parallel.h"
#include "core/rng.h"
#include "kernels/matmul.h"

namespace lode::bench {

// Shortest time of body() in seconds, repeated for about `seconds`.
template <class Body>
double best_time(const Body& body, double seconds = 0.3) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  body();
  double best = 1e30;
  const auto begin = Clock::now();
  do {
    const auto start = Clock::now();
    body();
    best = std::min(best, since(start));
  } while (since(begin) < seconds);
  return best;
}

inline void print(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

inline Tensor random_tensor(Memory& memory, DType dtype, std::int64_t rows, std::int64_t cols) {
  Tensor x(memory, MemoryTag::activations, dtype, rows, cols);
  Rng rng(1, "bench");
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      const auto value = static_cast<float>(rng.next_uniform() - 0.5);
      if (dtype == DType::f32) {
        x.view().row<float>(r)[c] = value;
      } else {
        x.view().row<bf16>(r)[c] = to_bf16(value);
      }
    }
  }
  return x;
}

}  // namespace lode::bench
