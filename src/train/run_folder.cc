#include "train/run_folder.h"

#include "core/fail.h"

namespace lode {
namespace {

// What a run leaves beside its checkpoints, the log and event files, in output_dir and in logging_dir.
constexpr std::string_view kOutputFiles[] = {"run.json", "recipe.yaml", "report.html"};
constexpr std::string_view kLogFiles[] = {"metrics.jsonl", "trace.json"};

bool is_event_file(std::string_view name) {
  return name.starts_with("events.out.tfevents.");
}

}  // namespace

RunFolder::RunFolder(FileSystem& files, const Recipe& recipe, int threads, Log& log)
    : path_(recipe.output_dir),
      log_path_(recipe.logging_dir.empty() ? recipe.output_dir : recipe.logging_dir) {
  if (files.exists(path_) && !files.is_directory(path_)) {
    fail(ErrorKind::usage, "output_dir {}: there is a file of that name; name a folder", path_);
  }
  files.make_directory(path_);
  files.make_directory(log_path_);
  lock_ = std::make_unique<FileLock>(in(".lock"));
  const bool resuming = !recipe.resume_from_checkpoint.empty();
  if (holds_a_run(files) && !resuming) {
    if (!recipe.overwrite_output_dir) {
      fail(ErrorKind::usage,
           "output_dir {} (or its logging_dir): the folder holds another run; resume it "
           "(resume_from_checkpoint: true), name another folder, "
           "or set overwrite_output_dir: true",
           path_);
    }
    overwrite_ = true;
  }
  log.add_file(join_path(log_path_, "log.txt"));
  clean_leftovers(files, path_);
  if (resuming) find_checkpoint(files, recipe, threads, log);
}

bool RunFolder::holds_a_run(FileSystem& files) const {
  for (const std::string_view name : kOutputFiles) {
    if (files.exists(in(name))) return true;
  }
  for (const std::string_view name : kLogFiles) {
    if (files.exists(join_path(log_path_, name))) return true;
  }
  return !list_checkpoints(files, path_).empty();
}

void RunFolder::begin(FileSystem& files) {
  if (!overwrite_) return;
  for (const FoundCheckpoint& checkpoint : list_checkpoints(files, path_)) files.remove(checkpoint.path);
  for (const std::string_view name : kOutputFiles) files.remove(in(name));
  for (const std::string_view name : kLogFiles) files.remove(join_path(log_path_, name));
  for (const std::string& name : files.list(log_path_)) {
    if (is_event_file(name)) files.remove(join_path(log_path_, name));
  }
}

void RunFolder::find_checkpoint(FileSystem& files, const Recipe& recipe, int threads, Log& log) {
  if (recipe.resume_from_checkpoint != "latest") {
    const CheckpointReport report = verify_checkpoint(files, recipe.resume_from_checkpoint, threads);
    if (!report.sound()) {
      std::string list;
      for (const std::string& problem : report.problems) list += "\n  " + problem;
      fail(ErrorKind::data, "{}: the checkpoint cannot be resumed from:{}", recipe.resume_from_checkpoint,
           list);
    }
    resume_from_ = {report.step, report.path};
    return;
  }
  LatestCheckpoint latest = find_latest_checkpoint(files, path_, threads);
  for (const CheckpointReport& report : latest.damaged) {
    log.warning("{}: damaged, passed over: {}", report.path,
                report.problems.empty() ? "" : report.problems.front());
  }
  if (!latest.found) log.info("no checkpoint to resume from in {}: the run begins at step 0", path_);
  resume_from_ = latest.found;
}

}  // namespace lode
