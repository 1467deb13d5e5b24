// A model's weights as Hugging Face stores them: one model.safetensors, or shards of a limited size behind an
// index.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "io/safetensors.h"

namespace lode {

// Writes into an existing folder, not atomically: whoever needs that gives a temporary folder. Tensors are
// put into shards in the order of `specs`; a new shard begins where the limit would be passed (a tensor is
// never split, so one beyond it makes a larger shard). view(i) is called once for each specs[i]; its memory
// is read before the next call. Returns the names of the files written.
std::vector<std::string> write_sharded_safetensors(FileSystem& files, const std::string& folder,
                                                   const std::vector<TensorSpec>& specs,
                                                   std::uint64_t shard_bytes,
                                                   const std::function<ConstView(std::size_t)>& view);

}  // namespace lode
