// Models of the Hugging Face hub that are on this machine.
#pragma once

#include <string>

#include "core/file.h"

namespace lode {

// owner/name without anything that only a path has.
bool looks_like_hub_id(const std::string& name);

// A path as it is when it exists or is no hub id; else the folder of the hub's snapshot in the local cache
// (HF_HUB_CACHE, HF_HOME, or ~/.cache/huggingface). Throws Error(data) when the cache has none: nothing is
// downloaded.
std::string resolve_model_path(FileSystem& files, const std::string& name);

}  // namespace lode
