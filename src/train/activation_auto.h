// The cheapest policy of activations that keeps within a number of bytes. Every tensor of a micro-batch grows
// with its tokens alone, so that running the model on few of them tells what many will take.
#pragma once

#include <string>

#include "nn/decoder.h"
#include "train/engine.h"

namespace lode {

// Peak bytes of activations in forward and backward of a micro-batch, measured on 128 tokens and scaled.
// Uses and resets the decoder's gradients and the memory's peaks.
std::uint64_t rehearse_activations(Context& context, Decoder& decoder, const ActivationPolicy& policy,
                                   std::int64_t tokens);

struct FittingPolicy {
  ActivationPolicy policy;  // offload: the one given, where it takes that
  std::string measured;     // "keep 3.1 GiB, selective 1.9 GiB": what was tried
};

// In the order of their cost: keep, selective, whole blocks (as few as fit, up to all), all with their inputs
// offloaded. Throws Error(memory) when even that takes more than `budget`.
FittingPolicy fit_activations(Context& context, Decoder& decoder, std::int64_t tokens, std::uint64_t budget,
                              Offload& offload);

// "1.5GiB", "800MB", "1073741824": binary units with an i, else decimal. Throws Error(usage).
std::uint64_t parse_bytes(const std::string& text);

}  // namespace lode
