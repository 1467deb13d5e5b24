#include "train/engine.h"

#include "core/file.h"
#include "core/parallel.h"
#include "kernels/cpu/features.h"
#include "kernels/matmul.h"

namespace lode {
namespace {

DType choose_precision(Facts& facts, std::optional<bool> asked) {
  const MatMulPath path = bf16_matmul_path();
  const std::string_view wish = !asked ? "auto" : *asked ? "bf16" : "f32";
  if (asked ? *asked : path.native_bf16) {
    facts.set({"precision", std::string(wish), "bf16 mixed",
               "weights, gradients and optimizer in f32; activations and products' operands in bf16"});
    facts.set({"bf16 products", "bf16 dot products", path.chosen, path.why, !path.native_bf16});
    return DType::bf16;
  }
  facts.set({"precision", std::string(wish), "f32",
             asked ? "asked" : format("bf16 products would be {}: {}", path.chosen, path.why)});
  return DType::f32;
}

std::string large_pages(FileSystem& files) {
  constexpr auto kFile = "/sys/kernel/mm/transparent_hugepage/enabled";
  if (!files.exists(kFile)) return "never";
  const std::string text = files.read(kFile);
  const auto begin = text.find('['), end = text.find(']');
  return begin == std::string::npos || end == std::string::npos ? "never"
                                                                : text.substr(begin + 1, end - begin - 1);
}

}  // namespace

Engine::Engine(const EngineOptions& options)
    : workspace_(memory_), context_{.memory = memory_, .facts = facts_, .kernel = {1, &workspace_}} {
  const int available = available_threads();
  const int threads = options.threads > 0 ? options.threads : available;
  context_.kernel.threads = threads;
  context_.seed = options.seed;
  facts_.set({"threads", options.threads > 0 ? format("{}", options.threads) : "auto", format("{}", threads),
              format("{} cores may be used", available)});
  const CpuPath path = cpu_path();
  facts_.set({"instruction set", "AVX3", path.target,
              path.forced            ? "forced"
              : path.missing.empty() ? "the processor has it"
                                     : path.missing,
              path.target != "AVX3"});
  context_.dtype = choose_precision(facts_, options.bf16);
  const std::string pages = large_pages(real_files());
  const bool on = pages != "never";
  facts_.set({"large pages", "2 MiB", on ? "2 MiB" : "4 KiB",
              on ? format("transparent_hugepage is {}", pages)
                 : "transparent_hugepage is off in this system: first use of memory is slow",
              !on});
}

}  // namespace lode
