// GGUF weights into a decoder, as floats or in the blocks of the file.
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

}  // namespace lode
