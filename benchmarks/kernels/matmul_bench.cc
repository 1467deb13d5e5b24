// The three products of a linear layer in bf16, [T, in] -> [T, out], and few rows against weights, beside the
// peak of the run.
//   matmul_bench [threads]
#include <cstdlib>

#include "bench.h"

using namespace lode;

namespace {

struct Bench {
  Memory& memory;
  KernelContext& context;
  double peak;

  std::string rate(double flops, double seconds) const {
    return format("{:5.0f} {:3.0f} %", flops / seconds * 1e-9, 100 * flops / seconds * 1e-9 / peak);
  }

  void linear(std::int64_t tokens, std::int64_t in, std::int64_t out) {
    const auto tensor = [&](DType dtype, std::int64_t r, std::int64_t c) {
      return bench::random_tensor(memory, dtype, r, c);
    };
    const Tensor x = tensor(DType::bf16, tokens, in), w = tensor(DType::bf16, out, in),
                 dw = tensor(DType::f32, out, in);
    const Tensor y = tensor(DType::bf16, tokens, out);
    const double flops =
        2.0 * static_cast<double>(tokens) * static_cast<double>(in) * static_cast<double>(out);
    const auto time = [&](const MatMul& product) {
      return bench::best_time([&] { matmul(context, product); }, 0.25);
    };
    const double forward = time({.a = x.view(), .b = w.view(), .transpose_b = true, .c = y.view()});
    const double dx = time({.a = y.view(), .b = w.view(), .c = x.view()});
    const double weights =
        time({.a = y.view(), .b = x.view(), .transpose_a = true, .accumulate = true, .c = dw.view()});
    bench::print(format("{:5} x {:4} -> {:5}   forward {}   dX {}   dW {}", tokens, in, out,
                        rate(flops, forward), rate(flops, dx), rate(flops, weights)));
  }

  // What an adapter of rank r adds to a layer: down and up, and the four products of their backward. GB/s of
  // the wide matrix, read once or read and written.
  void low_rank(std::int64_t tokens, std::int64_t width, std::int64_t rank) {
    const auto tensor = [&](DType dtype, std::int64_t r, std::int64_t c) {
      return bench::random_tensor(memory, dtype, r, c);
    };
    const Tensor x = tensor(DType::bf16, tokens, width), z = tensor(DType::bf16, tokens, rank);
    const Tensor a = tensor(DType::bf16, rank, width), b = tensor(DType::bf16, width, rank);
    const Tensor da = tensor(DType::f32, rank, width), db = tensor(DType::f32, width, rank);
    const auto rate_of = [&](double passes, const MatMul& product) {
      const double seconds = bench::best_time([&] { matmul(context, product); }, 0.25);
      return format("{:5.2f} ms {:4.1f} GB/s", seconds * 1e3,
                    passes * static_cast<double>(x.bytes()) / seconds * 1e-9);
    };
    bench::print(format(
        "{} x {}, rank {}: down {}  up {}  dz {}  dx {}  db {}  da {}", tokens, width, rank,
        rate_of(1, {.a = x.view(), .b = a.view(), .transpose_b = true, .c = z.view()}),
        rate_of(2, {.a = z.view(), .b = b.view(), .transpose_b = true, .accumulate = true, .c = x.view()}),
        rate_of(1, {.a = x.view(), .b = b.view(), .c = z.view()}),
        rate_of(2, {.a = z.view(), .b = a.view(), .accumulate = true, .c = x.view()}),
        rate_of(1, {.a = x.view(), .b = z.view(), .transpose_a = true, .accumulate = true, .c = db.view()}),
        rate_of(1, {.a = z.view(), .b = x.view(), .transpose_a = true, .accumulate = true, .c = da.view()})));
  }

  void few_rows(std::int64_t rows, std::int64_t in, std::int64_t out, DType dtype) {
    const Tensor x = bench::random_tensor(memory, dtype, rows, in),
                 w = bench::random_tensor(memory, dtype, out, in);
    const Tensor y = bench::random_tensor(memory, DType::f32, rows, out);
    const double seconds = bench::best_time(
        [&] { matmul(context, {.a = x.view(), .b = w.view(), .transpose_b = true, .c = y.view()}); }, 0.25);
    bench::print(format("{} x {} -> {} {}: {:.1f} GB/s of weights", rows, in, out, name_of(dtype),
                        static_cast<double>(w.bytes()) / seconds * 1e-9));
  }
};

}  // namespace

int main(int argc, char** argv) {
  Memory memory;
  Workspace workspace(memory);
  KernelContext context{argc > 1 ? std::atoi(argv[1]) : available_threads(), &workspace};
  Bench bench{memory, context, measure_matmul_peak(context, memory, DType::bf16, true)};
  bench::print(format("bf16 peak {:.0f} GFLOP/s, {} threads, {}", bench.peak, context.threads,
                      matmul_library_version()));
  constexpr std::int64_t kShapes[][2] = {{768, 768},  {768, 2304}, {768, 3072}, {3072, 768},
                                         {256, 1024}, {320, 960},  {576, 1536}};
  for (const std::int64_t width : {576, 1536, 3072}) bench.low_rank(2048, width, 16);
  for (const auto& [in, out] : kShapes) bench.linear(2048, in, out);
  for (const std::int64_t tokens : {256, 512, 1024, 2048}) bench.linear(tokens, 768, 50304);
  for (const std::int64_t rows : {1, 4, 5, 8}) {
    bench.few_rows(rows, 768, 50304, DType::bf16);
    bench.few_rows(rows, 768, 50304, DType::f32);
  }
}
