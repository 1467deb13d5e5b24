// Adapters as PEFT's files: adapter_config.json and adapter_model.safetensors. Merging them into their base.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "io/safetensors.h"
#include "nn/decoder.h"

namespace lode {

inline constexpr std::string_view kAdapterConfigFile = "adapter_config.json";
inline constexpr std::string_view kAdapterWeightsFile = "adapter_model.safetensors";

// What a decoder must be built with to hold a folder's adapter: ranks and modules come from the tensors,
// scale and dropout from the config. Throws Error(data) for adapters of other kinds (DoRA, biases, ...), by
// name, and for pickled files.
AdapterSpec read_peft_spec(FileSystem& files, const std::string& folder);

// The base that a folder's config names; "" when it names none.
std::string read_peft_base(FileSystem& files, const std::string& folder);

// How many rows of embedding and head a folder's adapter is for, by its tensors of them; 0: it has none.
std::int64_t read_peft_rows(FileSystem& files, const std::string& folder, const DecoderNames& names);

// Fills the decoder's adapter. Throws Error(data) with everything that does not fit the base: modules it
// lacks, shapes, missing and unknown tensors.
void load_peft(FileSystem& files, const std::string& folder, Context& context, Decoder& decoder);

// The tensors of an adapter as they are written: parameter is the index in the list.
struct PeftTensor {
  TensorSpec spec;
  std::size_t parameter;
};
std::vector<PeftTensor> peft_tensors(const ParameterList& parameters, DType dtype = DType::f32);

// The text of adapter_config.json. base: model name or path.
std::string peft_config(const ParameterList& parameters, const std::string& base);

// Writes both files into an existing folder.
void save_peft(FileSystem& files, const std::string& folder, const ParameterList& parameters,
               const std::string& base);

// Rows [first, first + out.rows) of base parameter `index` with its adapter: W + scale B A, or the full copy;
// out f32. as_head: of a tied embedding, what the head reads.
void merged_rows(Context& context, const ParameterList& parameters, std::size_t index, bool as_head,
                 std::int64_t first, View out);
// A tied head that has an adapter or a copy of its own: merged, it is a tensor beside the embedding.
bool unties_head(const Decoder& decoder);

}  // namespace lode
