// A frozen linear layer's two products in int8 arithmetic beside bf16, in turns.
//   lode_bench_int8 [threads]
#include "kernels/int8_matmul.h"

#include <cstdlib>
#include <vector>

#include "bench.h"

using namespace lode;

namespace {

struct Bench {
  Memory& memory;
  KernelContext& context;

  // The shortest times of two bodies that run in turns.
  template <class A, class B>
  static std::pair<double, double> in_turns(const A& a, const B& b) {
    double first = 1e30, second = 1e30;
    for (int i = 0; i < 6; ++i) {
      first = std::min(first, bench::best_time(a, 0.04));
      second = std::min(second, bench::best_time(b, 0.04));
    }
    return {first, second};
  }

  void linear(std::int64_t tokens, std::int64_t in, std::int64_t out, DType y_dtype) {
    const Tensor x = bench::random_tensor(memory, DType::bf16, tokens, in),
                 w = bench::random_tensor(memory, DType::bf16, out, in),
                 dy = bench::random_tensor(memory, DType::bf16, tokens, out),
                 y = bench::random_tensor(memory, y_dtype, tokens, out);
    std::vector<std::int8_t> q(static_cast<std::size_t>(in * out));
    for (std::size_t i = 0; i < q.size(); ++i) q[i] = static_cast<std::int8_t>(i * 37 % 255 - 127);
    const std::vector<float> scale(static_cast<std::size_t>(out), 0.01f);
    const Int8Matrix b{q.data(), out, in, in, scale.data()};
    const auto forward =
        in_turns([&] { matmul(context, {.a = x.view(), .b = w.view(), .transpose_b = true, .c = y.view()}); },
                 [&] { int8_matmul(context, {.a = x.view(), .b = b, .transpose_b = true, .c = y.view()}); });
    const auto dx = in_turns([&] { matmul(context, {.a = dy.view(), .b = w.view(), .c = x.view()}); },
                             [&] { int8_matmul(context, {.a = dy.view(), .b = b, .c = x.view()}); });
    const double flops =
        2e-9 * static_cast<double>(tokens) * static_cast<double>(in) * static_cast<double>(out);
    const auto rates = [flops](const std::pair<double, double>& t) {
      return format("{:5.0f} -> {:5.0f} GFLOP/s ({:.2f}x)", flops / t.first, flops / t.second,
                    t.first / t.second);
    };
    bench::print(
        format("{:5} x {:4} -> {:6}   forward {}   dX {}", tokens, in, out, rates(forward), rates(dx)));
  }
};

}  // namespace

int main(int argc, char** argv) {
  Memory memory;
  Workspace workspace(memory);
  KernelContext context{argc > 1 ? std::atoi(argv[1]) : available_threads(), &workspace};
  bench::print(format("bf16 peak {:.0f} GFLOP/s, {} threads, {}; int8: {}",
                      measure_matmul_peak(context, memory, DType::bf16, true), context.threads,
                      matmul_library_version(), int8_matmul_path().chosen));
  Bench bench{memory, context};
  constexpr std::int64_t kShapes[][2] = {{576, 960},  {576, 576},  {576, 3072}, {1536, 576},
                                         {896, 1152}, {896, 9728}, {4864, 896}};
  for (const std::int64_t tokens : {2048, 512})
    for (const auto& [in, out] : kShapes) bench.linear(tokens, in, out, DType::bf16);
  for (const std::int64_t tokens : {128, 256, 1024}) bench.linear(tokens, 576, 49152, DType::f32);
  for (const std::int64_t tokens : {128, 256}) bench.linear(tokens, 896, 151936, DType::f32);
}
