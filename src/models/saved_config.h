// config.json and generation_config.json as written with a model's weights.
#pragma once

#include <string>

#include "models/family.h"
#include "text/tokenizer.h"

namespace lode {

// The model's own keys, with the tokenizer's ids and the dtype of the weights.
std::string saved_config(const ModelConfig& config, const Tokenizer& tokenizer, DType dtype);
std::string saved_generation_config(const Tokenizer& tokenizer);

}  // namespace lode
