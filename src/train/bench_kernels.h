// Measurements for `lode bench kernels` and `lode bench generate`: ops by themselves beside the machine's
// limits of the same run.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "models/family.h"
#include "train/engine.h"

namespace lode {

struct KernelFigure {
  std::string part;   // "ops", "attention" or "head"
  std::string model;  // a shape's name; "" for attention
  std::string name;
  double calls = 1;
  double seconds = 0, flops = 0, bytes = 0;  // of all calls
  double peak_gflops = 0;                    // measured beside it
  double floor_seconds = 0, floor_ratio = 0, peak_fraction = 0, stream_fraction = 0;
  // The head: the same products alone, without loss and chunks, and what the op allocates beyond its results.
  double plain_seconds = 0;
  std::uint64_t scratch_bytes = 0;
};

struct KernelBench {
  int threads = 0;
  double peak_gflops = 0, bandwidth = 0;  // the best of the run; GB/s
  std::vector<KernelFigure> figures;

  Json to_json() const;
  std::string text() const;
};

struct KernelBenchOptions {
  std::vector<std::string> parts;   // none: all. ops, attention, head
  std::vector<std::string> models;  // built-in shapes, folders or config.json files
  std::int64_t tokens = 2048;
};

// ops: every op of a training step on two layers of each shape, in its place, with cold caches as in
// training. attention: forward and backward at 2k, 8k and 32k tokens, head sizes 64 and 128, with and without
// a window. head: the vocabulary head with its loss, frozen and trained, beside the plain products.
KernelBench bench_kernels(const EngineOptions& engine, const KernelBenchOptions& options);

struct GenerateBench {
  double tokens_per_second = 0, weight_bytes = 0, bandwidth = 0;  // read for a token; GB/s of the same run
  double fraction = 0;                                            // of the bandwidth
  Json to_json() const;
  std::string text() const;
};

// Decoding of one sequence with random weights, behind a prompt.
GenerateBench bench_generate(Engine& engine, const ModelConfig& config, std::int64_t prompt_tokens,
                             std::int64_t new_tokens);

}  // namespace lode
