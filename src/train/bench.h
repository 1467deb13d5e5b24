// Measurements for `lode bench`: the machine's peak in matrix products, and whole training steps with their
// profile.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autograd/profile.h"
#include "core/json.h"
#include "models/family.h"
#include "train/engine.h"
#include "train/recipe.h"
#include "train/step.h"

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
  std::int64_t lora_rank = 0;         // > 0: adapters on every linear module of the layers, the rest frozen
  Recipe::FrozenCompute frozen_compute = Recipe::FrozenCompute::automatic;  // with adapters
  bool events = false;                                                      // keep each op's run
  ActivationPolicy activations;  // beside keep: steps of either take turns
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
  double floor_seconds = 0;       // of a step; 0: not known
  double floor_ratio = 0;         // seconds over floor
};

struct TrainBench {
  std::int64_t parameters = 0, trainable = 0, tokens = 0;
  double step_seconds = 0;  // median
  double tokens_per_second = 0, step_flops = 0, peak_gflops = 0, mfu = 0;
  double bandwidth = 0;  // GB/s of a measured streaming pass, z = x + y
  std::uint64_t peak_memory = 0;
  std::vector<OpShare> profile;        // by share, largest first
  std::string formula;                 // how mfu was computed, with its numbers
  std::vector<Profile::Event> events;  // of the timed steps, when asked for
  std::vector<double> losses;          // of each step, the first included; the tokens are the same in all
  std::vector<std::pair<std::string, std::string>> facts;
  std::optional<KeepComparison> keep;  // when a policy was asked for
  OffloadCounts offload;               // of all its steps

  Json to_json() const;
  std::string text() const;          // the summary
  std::string profile_text() const;  // the table by op
};

// Training steps (forward, backward, norm, AdamW) of a model with random weights on generated tokens.
TrainBench bench_train(Engine& engine, const ModelConfig& config, const TrainBenchOptions& options);

// One micro-batch of random tokens, cut into samples.
Step bench_step(std::int64_t vocabulary, std::int64_t tokens, std::int64_t sample_length);

// GB/s of z = x + y over arrays far larger than any cache, two reads and one write an element, counted as the
// STREAM benchmark does (McCalpin 1995); of reading alone, which is what decoding does. The best of ten.
double measure_bandwidth(Engine& engine);
double measure_read_bandwidth(Engine& engine);

double median(std::vector<double> values);  // 0 of none

// A built-in shape, or the config of a folder or file. Throws Error(usage) listing the shapes.
ModelConfig bench_config(const std::string& model);
std::string bench_model_names();  // "demo, gpt2-124m, ..."

}  // namespace lode
