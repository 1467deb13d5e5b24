// Checkpoint folders. `checkpoint-<step>` is a model that Hugging Face loads (model.safetensors, config.json,
// tokenizer), or an adapter that PEFT loads (adapter_model.safetensors, adapter_config.json), with, beside
// it, optimizer.safetensors, trainer_state.json, lode_state.json and manifest.json, which holds size and hash
// of every file and of every tensor. A folder gets its name only when all of it is on the disk; whatever is
// unfinished has a name that begins with ".tmp-". The order of checkpoints is by step, never by time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "io/safetensors.h"

namespace lode {

inline constexpr std::int64_t kCheckpointVersion = 1;

struct SavedTensor {
  TensorSpec spec;
  ConstView view;             // the live memory; data == nullptr: `read` makes the values
  std::size_t parameter = 0;  // index in the order of the optimizer's updates; of several, the smallest
  std::function<Tensor()> read = {};  // called by the writer's thread
};

struct CheckpointContents {
  std::string output_dir;  // exists
  std::int64_t step = 0;
  bool adapter = false;  // `model` is an adapter beside a frozen base
  // Each list sorted by `parameter`: data is stored in the order of updates, not by name, so that saving
  // follows the optimizer. An empty optimizer list writes no file.
  std::vector<SavedTensor> model, optimizer;
  std::vector<std::pair<std::string, std::string>>
      files;   // name, contents: config.json, trainer_state.json, ...
  Json state;  // lode_state.json
};

std::string checkpoint_path(const std::string& output_dir, std::int64_t step);

// Bytes on disk, without the manifest.
std::uint64_t checkpoint_size(const CheckpointContents& contents);
// Throws Error(data) with bytes needed and available when the disk has not the space.
void check_space(FileSystem& files, const CheckpointContents& contents);

// Writes a checkpoint and returns its path. written(p) is called when all tensors of parameters up to p are
// in the files (their memory may change from then on). On failure the unfinished folder is removed when
// possible and Error(data) raised; earlier checkpoints are not touched. An existing checkpoint of the same
// step is replaced.
std::string save_checkpoint(FileSystem& files, const CheckpointContents& contents,
                            const std::function<void(std::size_t)>& written = {});

struct FoundCheckpoint {
  std::int64_t step = 0;
  std::string path;
};
// By step, oldest first; complete or not.
std::vector<FoundCheckpoint> list_checkpoints(FileSystem& files, const std::string& output_dir);

// What checking one checkpoint found; sound when there is no problem.
struct CheckpointReport {
  std::string path;
  std::int64_t step = 0;
  std::vector<std::string> problems;    // each names its file, and its tensor when it has one
  std::vector<std::string> good_files;  // names
  bool sound() const { return problems.empty(); }
};

// Compares every file and tensor with the manifest. Throws nothing for damage, however bad.
CheckpointReport verify_checkpoint(FileSystem& files, const std::string& path, int threads = 1);

// For `lode ckpt fsck`: one checkpoint folder, or all below an output folder. Throws Error(data) when there
// is none.
std::vector<CheckpointReport> check_checkpoints(FileSystem& files, const std::string& path, int threads = 1);

struct LatestCheckpoint {
  std::optional<FoundCheckpoint> found;   // the newest that is sound
  std::vector<CheckpointReport> damaged;  // newer ones that are not: to be shown
};
LatestCheckpoint find_latest_checkpoint(FileSystem& files, const std::string& output_dir, int threads = 1);

// lode_state.json of a checkpoint.
Json read_checkpoint_state(FileSystem& files, const std::string& path);

// Removes the oldest so that `total_limit` remain (no limit when 0 or less); the newest and `keep_step` (-1:
// none) always do, as in Hugging Face. Folders without a complete manifest are neither counted nor removed.
// Returns what was removed.
std::vector<FoundCheckpoint> prune_checkpoints(FileSystem& files, const std::string& output_dir,
                                               int total_limit, std::int64_t keep_step = -1);

// Removes what killed saves and removals left, at the start of a run. Nothing may be writing there.
void clean_leftovers(FileSystem& files, const std::string& output_dir);

}  // namespace lode
