// Measurements for `lode bench`: the machine's peak in matrix products, and whole training steps with their
// profile.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "models/family.h"
#include "train/engine.h"

namespace lode {

struct GemmPeak {
  DType dtype;
  double gflops;
};
std::vector<GemmPeak> bench_gemm(Engine& engine, bool thorough);

struct TrainBenchOptions {
  std::int64_t tokens = 2048;         // of a micro-batch
  std::int64_t sample_length = 2048;  // of each sample in it
  std::int64_t steps = 5;             // timed ones, after one that is not
  ActivationPolicy activations;       // beside keep: steps of either take turns
};

// Steps with everything kept, timed in turns with those that were asked for.
struct KeepComparison {
  double slow_down = 0;                                 // median step time, times that of keep
  std::uint64_t activations = 0, keep_activations = 0;  // peak bytes of the tag
  double recomputed_flops = 0;                          // of a step
};

struct OpShare {
  std::string op;
  double seconds = 0, share = 0;  // of a step; median step
  double calls = 0;               // a step
  double gflops = 0;              // achieved, products
  double peak_fraction = 0;       // of the measured peak, products
  double gbytes = 0;              // achieved GB/s, passes
};

struct TrainBench {
  std::int64_t parameters = 0, tokens = 0;
  double step_seconds = 0;  // median
  double tokens_per_second = 0, step_flops = 0, peak_gflops = 0, mfu = 0;
  double bandwidth = 0;  // GB/s of a measured streaming pass, y += x
  std::uint64_t peak_memory = 0;
  std::vector<OpShare> profile;  // by share, largest first
  std::string formula;           // how mfu was computed, with its numbers
  std::vector<std::pair<std::string, std::string>> facts;
  std::optional<KeepComparison> keep;  // when a policy was asked for
  OffloadCounts offload;               // of all its steps

  Json to_json() const;
  std::string text() const;
};

// Full training steps (forward, backward, norm, AdamW) of a model from scratch on generated tokens.
TrainBench bench_train(Engine& engine, const ModelConfig& config, const TrainBenchOptions& options);

// Built-in shapes for benchmarks: "demo", "gpt2-124m", "llama-124m", "smollm2-135m". Throws Error(usage)
// listing them.
ModelConfig bench_model(const std::string& name);

}  // namespace lode
