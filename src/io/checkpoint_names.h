// Names inside output folders and checkpoints, shared by the sources that write and check them.
#pragma once

#include <string_view>

namespace lode {

inline constexpr std::string_view kFormatName = "lode-checkpoint";
inline constexpr std::string_view kModelName = "model.safetensors";
inline constexpr std::string_view kAdapterName = "adapter_model.safetensors";  // of a frozen base
inline constexpr std::string_view kOptimizerName = "optimizer.safetensors";
inline constexpr std::string_view kStateName = "lode_state.json";
inline constexpr std::string_view kManifestName = "manifest.json";

inline constexpr std::string_view kCheckpointPrefix = "checkpoint-";
inline constexpr std::string_view kUnfinishedPrefix = ".tmp-checkpoint-";
inline constexpr std::string_view kReplacedPrefix = ".tmp-replaced-checkpoint-";
inline constexpr std::string_view kRemovedPrefix = ".tmp-removed-checkpoint-";

// A name that stays inside its folder.
inline bool is_file_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

}  // namespace lode
