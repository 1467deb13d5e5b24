// What one process needs to compute: memory, scratch, threads, facts, precision. One per run; nothing is
// global.
#pragma once

#include <optional>

#include "autograd/context.h"
#include "core/log.h"

namespace lode {

struct EngineOptions {
  int threads = 0;           // 0: every core this process may use
  std::optional<bool> bf16;  // unset: where the processor multiplies bf16 itself
  bool pure_bf16 = false;    // with bf16: trained weights have no f32 masters
  bool fp16 = false;         // asked for; computed in f32
  std::uint64_t seed = 0;
  std::size_t memory_limit = 0;  // of what is mapped for tensors, bytes; 0: none
};

// Makes the choices that every run makes and their facts: threads, instruction set, precision, large pages.
class Engine {
 public:
  explicit Engine(const EngineOptions& options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Memory& memory() { return memory_; }
  Facts& facts() { return facts_; }
  Context& context() { return context_; }
  int threads() const { return context_.kernel.threads; }
  DType dtype() const { return context_.dtype; }

 private:
  Memory memory_;
  Facts facts_;
  Workspace workspace_;
  Context context_;
};

}  // namespace lode
