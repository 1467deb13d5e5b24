// What a decoder's parameters are called in GGUF files, and how their values differ there.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "models/family.h"

namespace lode {

// Rows and columns are as in the decoder ([out, in] for every family).
struct GgufPlace {
  std::string name;
  // Of rotated queries and keys in some architectures: the channels of each of this many heads are pairs (0,
  // D/2), (1, D/2 + 1), ... there. 0: the same order.
  std::int64_t heads = 0;
  float offset = 0;  // added to the values there (norms of gemma)
};

// By Hugging Face's tensor name: weights and biases that the family may have, all layers.
std::map<std::string, GgufPlace, std::less<>> gguf_places(const ModelConfig& config);

// "llama" for llama and mistral. Throws Error(data) when a family has no GGUF form.
std::string gguf_architecture(const ModelConfig& config);
// The family's model_type; "" for an architecture that is not supported.
std::string_view family_of_gguf(std::string_view architecture);

// Which row of Hugging Face's matrix is row `row` of the GGUF one, of a head with `head_dim` rows.
inline std::int64_t row_within_head(std::int64_t row, std::int64_t head_dim) {
  return row / 2 + row % 2 * (head_dim / 2);
}

}  // namespace lode
