// A decoder's parameters as tensors of Hugging Face's files.
#pragma once

#include <vector>

#include "io/weights.h"
#include "models/family.h"

namespace lode {

// Reads all weights from a folder's safetensors. Throws Error(data) with every missing, extra or misshapen
// tensor.
void load_model_weights(FileSystem& files, const std::string& path, const ModelConfig& config,
                        Decoder& decoder, int threads);

// How each parameter is written, in the order of the list.
std::vector<TensorSpec> file_tensors(const ParameterList& parameters, DType dtype);

// "124.4M": for people.
std::string short_parameter_count(std::int64_t count);

}  // namespace lode
