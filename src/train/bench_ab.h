// `lode bench ab`: what each optimisation of a recipe does, measured by running the recipe with it off and on
// in turn, each time in a process of its own, so that peak memory is that run's.
#pragma once

#include <string>
#include <vector>

#include "core/file.h"
#include "core/json.h"

namespace lode {

struct AbOptions {
  std::int64_t steps = 6;         // of each run; the first is not timed
  std::int64_t rounds = 3;        // off, on, off, on, ...
  std::vector<std::string> only;  // names; empty: all
};

// One side of a comparison over all rounds.
struct AbSide {
  std::vector<std::string> overrides;
  std::vector<double> tokens_per_second;  // median of a run's steps, by round
  std::vector<double> peak_memory;        // bytes, resident
  double loss = 0;                        // of the last step; equal in all rounds
};

struct AbResult {
  std::string name;  // "packing", ...
  AbSide off, on;
  std::string problem;  // why it was not compared: the recipe's own message; "" when it was
  std::string fact;     // what the run reported of the path, "asked / chosen: why", when it did

  double speed() const;  // median of the rounds' ratios, on / off
  double slowest() const, fastest() const;
  double memory() const;           // ratio of the medians
  double loss_difference() const;  // on - off
  Json to_json() const;
};

// recipe: path and overrides as for `lode train`; runs go to a folder below output_dir, removed afterwards.
// binary: of lode. Throws Error(usage) for unknown names.
std::vector<AbResult> bench_ab(FileSystem& files, const std::string& binary,
                               const std::vector<std::string>& recipe, const AbOptions& options);

std::string ab_table(const std::vector<AbResult>& results);

}  // namespace lode
