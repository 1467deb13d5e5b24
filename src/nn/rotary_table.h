// Tables of cos and sin for rotary positions; angles in f64, rounded once.
#pragma once

#include "kernels/segments.h"
#include "nn/decoder_spec.h"
#include "ops/rotary.h"

namespace lode {

// Frequency of channel pair j, j < rotary_dim / 2, in a sequence of `length` tokens (dynamic and longrope
// only).
double rotary_frequency(const RotarySpec& spec, std::int64_t j, std::int64_t length = 0);

// Makes the table cover positions [0, positions), growing in powers of two; nothing to do when it already
// does. For rules that do not depend on the length.
void extend_rotary_table(Memory& memory, const RotarySpec& spec, std::int64_t positions, RotaryTable& table);

// Makes the table serve the tokens of a batch. Rules by length go by each segment alone, so that a sample's
// angles do not depend on what it is packed with; the table then fits this batch only. A segment that
// continues a cached sequence has the length of the whole: new tokens turn by the rule of the length reached,
// while keys in the cache stay as they were turned, as in Hugging Face's generation.
void prepare_rotary_table(Memory& memory, const RotarySpec& spec, const Segments& segments,
                          RotaryTable& table);

}  // namespace lode
