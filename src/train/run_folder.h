// The output folder of a run: what it may hold when a run begins, who may write it, and where things in it
// are.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/log.h"
#include "io/checkpoint.h"
#include "train/recipe.h"

namespace lode {

class RunFolder {
 public:
  // Makes and locks the folder (a second run on it is Error(usage)), refuses one that holds another run
  // unless resuming or overwriting, removes leftovers of killed saves, and finds the checkpoint to go on
  // from. Damaged checkpoints that were passed over are said in the log, which goes on in log.txt. Throws
  // Error(data) when it cannot be written.
  RunFolder(FileSystem& files, const Recipe& recipe, int threads, Log& log);

  // Removes the former run when the recipe says overwrite_output_dir: just before the first step, so that a
  // run that cannot begin costs nothing. Only what a run wrote goes; the log is kept and appended to.
  void begin(FileSystem& files);

  const std::string& path() const { return path_; }
  const std::string& log_path() const { return log_path_; }  // logging_dir, else the folder
  std::string metrics_path() const { return join_path(log_path_, "metrics.jsonl"); }
  std::string trace_path() const { return join_path(log_path_, "trace.json"); }
  std::string in(std::string_view name) const { return join_path(path_, name); }
  const std::optional<FoundCheckpoint>& resume_from() const { return resume_from_; }

 private:
  bool holds_a_run(FileSystem& files) const;
  void find_checkpoint(FileSystem& files, const Recipe& recipe, int threads, Log& log);

  std::string path_, log_path_;
  std::unique_ptr<FileLock> lock_;
  std::optional<FoundCheckpoint> resume_from_;
  bool overwrite_ = false;
};

}  // namespace lode
