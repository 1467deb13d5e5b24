#include "train/engine.h"

#include "core/file.h"
#include "core/parallel.h"
#include "kernels/cpu/features.h"
#include "kernels/matmul.h"

namespace lode {
namespace {

DType choose_precision(Facts& facts, const EngineOptions& options) {
  const std::optional<bool> asked = options.bf16;
  if (options.fp16) {
    facts.set({"precision", "fp16", "f32 with the loss scaling of fp16",
               "no processor kernel here computes in f16: activations and products are f32; gradients beyond "
               "f16's range skip the step and lower the scale as they would elsewhere",
               true});
    return DType::f32;
  }
  const MatMulPath path = bf16_matmul_path();
  const std::string_view wish = !asked ? "auto" : options.pure_bf16 ? "pure bf16" : *asked ? "bf16" : "f32";
  if (asked ? *asked : path.native_bf16) {
    if (options.pure_bf16) {
      facts.set(
          {"precision", std::string(wish), "pure bf16",
           "matrices of weights, activations and products' operands in bf16; gradients, optimizer, norms "
           "and biases in f32"});
    } else {
      facts.set({"precision", std::string(wish), "bf16 mixed",
                 "weights, gradients and optimizer in f32; activations and products' operands in bf16"});
    }
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
    : memory_(options.memory_limit),
      workspace_(memory_),
      context_{.memory = memory_, .facts = facts_, .kernel = {1, &workspace_}} {
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
  context_.dtype = choose_precision(facts_, options);
  const std::string pages = large_pages(real_files());
  const bool on = pages != "never";
  facts_.set({"large pages", "2 MiB", on ? "2 MiB" : "4 KiB",
              on ? format("transparent_hugepage is {}", pages)
                 : "transparent_hugepage is off in this system: first use of memory is slow",
              !on});
}

}  // namespace lode
