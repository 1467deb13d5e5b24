// Tables of cos and sin for rotary positions; angles in f64, rounded once.
#pragma once

#include "nn/decoder_spec.h"
#include "ops/rotary.h"

namespace lode {

// Frequency of channel pair j, j < rotary_dim / 2. Scaling as Hugging Face's rope types linear and llama3
// define it.
double rotary_frequency(const RotarySpec& spec, std::int64_t j);

// Makes the table cover positions [0, positions), growing in powers of two; nothing to do when it already
// does.
void extend_rotary_table(Memory& memory, const RotarySpec& spec, std::int64_t positions, RotaryTable& table);

}  // namespace lode
