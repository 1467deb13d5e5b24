// GGUF weights and adapters into a decoder, as floats or in the blocks of the file.
#pragma once

#include "io/gguf.h"
#include "models/family.h"

namespace lode {

// Reads all weights of the base in the form that each parameter keeps: floats dequantised on all threads, or
// the file's blocks as they are. Throws Error(data) with every missing, extra, misshapen or unreadable
// tensor; nothing was read then.
void load_gguf_weights(const GgufFile& file, const ModelConfig& config, Decoder& decoder, Context& context);

// What load_gguf_weights would refuse; empty when it will succeed.
std::vector<std::string> find_gguf_problems(const GgufFile& file, const ModelConfig& config,
                                            const Decoder& decoder);

// Makes a policy keep frozen matrices in the format that the file has them in; those in F32, F16 or BF16 stay
// floats, and so do embedding and head of a grown vocabulary. For a decoder whose base is not trained, before
// it is built. The file need not stay open.
void keep_gguf_formats(const GgufFile& file, const ModelConfig& config, WeightPolicy& policy);

// A LoRA adapter's file, as llama.cpp applies it. What a decoder must be built with to hold it: modules and
// ranks come from the tensors. Throws Error(data) for another kind of file, another architecture, and
// tensors that belong to no module.
AdapterSpec read_gguf_adapter_spec(const GgufFile& file, const ModelConfig& config);

// Fills the adapter of a decoder that was built so. Throws Error(data) with everything that does not fit.
void load_gguf_adapter(const GgufFile& file, const ModelConfig& config, Decoder& decoder, Context& context);

}  // namespace lode
