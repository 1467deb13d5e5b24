// GGUF models as Hugging Face's config: what the metadata and tensors say, under the keys that the families
// read.
#pragma once

#include <optional>
#include <string>

#include "core/json.h"
#include "io/gguf.h"

namespace lode {

// The GGUF file that a path names: itself, or the only one in a folder without config.json (of a split model
// its first part). Nothing for other folders and files; Error(data) when a folder has several.
std::optional<std::string> find_gguf(FileSystem& files, const std::string& path);

// Throws Error(data) naming what is missing or not supported.
Json gguf_config(const GgufFile& file);

// The divisors of frequencies that stand for rope_type llama3, as `rope_freqs.weight` holds them.
std::vector<float> llama3_divisors(double theta, std::int64_t rotary_dim, double factor, double low,
                                   double high, double original);

// Whether the head is the embedding: it is absent, or holds the same bytes.
bool has_tied_head(const GgufFile& file);

}  // namespace lode
