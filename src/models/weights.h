// A decoder's parameters as tensors of Hugging Face's files.
#pragma once

#include <vector>

#include "io/weights.h"
#include "models/family.h"

namespace lode {

// Reads all weights of the base from a folder's safetensors or a GGUF file in the form that each parameter
// keeps: f32, bf16, or quantised while loading. Full copies of adapters become equal to it. Throws
// Error(data) with every missing, extra or misshapen tensor.
void load_model_weights(FileSystem& files, const std::string& path, const ModelConfig& config,
                        Decoder& decoder, Context& context);

// What load_model_weights would refuse; empty when it will succeed. Reads no weights.
std::vector<std::string> find_weight_problems(FileSystem& files, const std::string& path,
                                              const ModelConfig& config, const Decoder& decoder);

// How each parameter is written, in the order of the list.
std::vector<TensorSpec> file_tensors(const ParameterList& parameters, DType dtype);

// "124.4M": for people.
std::string short_parameter_count(std::int64_t count);

}  // namespace lode
