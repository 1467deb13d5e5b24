// What a run keeps between forward and backward, from its recipe.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "autograd/capture.h"
#include "nn/decoder.h"
#include "train/engine.h"
#include "train/recipe.h"

namespace lode {

struct Activations {
  std::unique_ptr<Offload> offload;  // null: nothing is offloaded
  ActivationPolicy policy;           // refers to offload
};

// Makes the facts. Opens the file of what is offloaded: Error(usage) when its folder is missing, Error(data)
// when it cannot be written to or has too little room for the largest micro-batch. activation_policy: auto
// runs the decoder, whose gradients must be allocated: Error(memory) when nothing fits.
Activations choose_activations(FileSystem& files, const Recipe& recipe, Decoder& decoder, Engine& engine);

// What `graph` asks for, as a fact; null when it is dynamic. say: hears what is captured.
std::unique_ptr<GraphCapture> choose_graph(Facts& facts, const Recipe& recipe,
                                           std::function<void(const std::string&)> say);
// Add to the run's counters what was done.
void count_capture(Facts& facts, const CaptureCounts& counts);
void count_offload(Facts& facts, const OffloadCounts& counts);

// What to say when the computation has waited for the file for more than a tenth of `seconds` of training;
// "" when it has not.
std::string advice_on_slow_offload(const Recipe& recipe, const OffloadCounts& counts, double seconds);

}  // namespace lode
