// Rotary settings of a config.json: rope_theta and rope_scaling (version 4 of transformers) or
// rope_parameters (version 5, which wins).
#pragma once

#include "models/family.h"

namespace lode {

// What a family knows without its rotary keys.
struct RotaryDefaults {
  std::int64_t head_dim, max_positions;
  double theta = 10000;
};

RotarySpec read_rotary(const ConfigReader& config, const RotaryDefaults& defaults);

// Version 5 nests one object per type of layer in rope_parameters where a model has two; nullptr without.
const Json* nested_rotary(const ConfigReader& config, std::string_view layer_type);
// The settings of one such object, or of rope_scaling; `key` is for messages.
RotarySpec read_rotary_object(const ConfigReader& config, const Json& object, const std::string& key,
                              const RotaryDefaults& defaults);

}  // namespace lode
