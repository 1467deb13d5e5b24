// Where a family's tensors are in files: Hugging Face's name of each of the decoder's parameters.
#pragma once

#include <string>

#include "nn/parameter.h"

namespace lode {

// A weight's name with "{}" for the layer's index; its bias ends in ".bias" instead of ".weight".
struct DecoderNames {
  std::string embedding, positions;
  std::string attention_norm, mlp_norm, final_norm;
  std::string attention_post_norm, mlp_post_norm;  // on a sub-layer's output
  // Either q, k and v are tensors of their own, or qkv is one with rows (here) q | k | v.
  std::string q, k, v, qkv, output;
  std::string q_norm, k_norm;  // of heads
  std::string gate, up, down;
  std::string head;
  FileLayout linear_layout = FileLayout::same;
};

}  // namespace lode
