#include "io/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/fail.h"
#include "io/checkpoint_names.h"

namespace lode {
namespace {

constexpr JsonLimits kStateLimits{.max_depth = 32, .max_values = 10'000'000};

// Folders that the steps of a replacement or removal pass through.
std::string unfinished_path(const std::string& output_dir, std::int64_t step) {
  return join_path(output_dir, format("{}{}", kUnfinishedPrefix, step));
}

std::optional<std::int64_t> step_of(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || format("{}", step) != name || step < 0) {
    return std::nullopt;
  }
  return step;
}

void remove_quietly(FileSystem& files, const std::string& path) {
  try {
    files.remove(path);
  } catch (const Error&) {  // a leftover is removed when the next run starts
  }
}

Json file_entry(std::uint64_t size, std::uint64_t hash) {
  Json entry;
  entry["size"] = size;
  entry["hash"] = hash_text(hash);
  return entry;
}

Json tensor_entries(const std::vector<SavedTensor>& tensors, const WrittenFile& written) {
  Json entries = Json::object();
  auto& members = entries.as_object();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    Json entry, shape = Json::array();
    for (const std::int64_t size : tensors[i].spec.shape) shape.push_back(size);
    entry["dtype"] = safetensors_name(tensors[i].spec.dtype);
    entry["shape"] = std::move(shape);
    entry["hash"] = hash_text(written.tensor_hashes[i]);
    members.emplace_back(tensors[i].spec.name, std::move(entry));
  }
  return entries;
}

std::vector<TensorSpec> specs_of(const std::vector<SavedTensor>& tensors) {
  std::vector<TensorSpec> specs;
  for (const SavedTensor& tensor : tensors) specs.push_back(tensor.spec);
  return specs;
}

void write_tensor(SafetensorsWriter& file, const SavedTensor& tensor) {
  if (tensor.read) {
    file.write(tensor.read().view());
  } else {
    file.write(tensor.view);
  }
}

void check_contents(const CheckpointContents& contents) {
  LODE_ASSERT(contents.step >= 0);
  LODE_ASSERT(std::ranges::is_sorted(contents.model, {}, &SavedTensor::parameter));
  LODE_ASSERT(std::ranges::is_sorted(contents.optimizer, {}, &SavedTensor::parameter));
  std::vector<std::string_view> names{kModelName, kAdapterName, kOptimizerName, kStateName, kManifestName};
  for (const auto& [name, text] : contents.files) {
    if (!is_file_name(name) || std::ranges::find(names, name) != names.end()) {
      fail(ErrorKind::internal, "\"{}\" cannot be a further file of a checkpoint", name);
    }
    names.push_back(name);
  }
}

// One save in its unfinished folder.
class Save {
 public:
  Save(FileSystem& files, const CheckpointContents& contents, std::string folder)
      : files_(files), contents_(contents), folder_(std::move(folder)) {}

  void run(const std::function<void(std::size_t)>& written) {
    files_.remove(folder_);
    files_.make_directory(folder_);
    manifest_["format"] = kFormatName;
    manifest_["format_version"] = kCheckpointVersion;
    manifest_["step"] = contents_.step;
    manifest_["hash"] = kHashName;
    manifest_["files"] = Json::object();
    manifest_["tensors"] = Json::object();
    write_tensors(written);
    for (const auto& [name, text] : contents_.files) write_text(name, text);
    write_text(kStateName, contents_.state.dump(2) + "\n");
    // Last, so that a folder with a manifest is complete.
    write_text(kManifestName, manifest_.dump(2) + "\n");
    files_.sync_directory(folder_);
  }

 private:
  // Both files grow together, parameter by parameter, just ahead of the optimizer.
  void write_tensors(const std::function<void(std::size_t)>& written) {
    const auto &model = contents_.model, &optimizer = contents_.optimizer;
    const std::string_view model_name = contents_.adapter ? kAdapterName : kModelName;
    SafetensorsWriter model_file(files_, join_path(folder_, model_name), specs_of(model));
    std::optional<SafetensorsWriter> optimizer_file;
    if (!optimizer.empty())
      optimizer_file.emplace(files_, join_path(folder_, kOptimizerName), specs_of(optimizer));
    std::size_t m = 0, o = 0;
    while (m < model.size() || o < optimizer.size()) {
      const std::size_t parameter = std::min(m < model.size() ? model[m].parameter : SIZE_MAX,
                                             o < optimizer.size() ? optimizer[o].parameter : SIZE_MAX);
      for (; m < model.size() && model[m].parameter == parameter; ++m) write_tensor(model_file, model[m]);
      for (; o < optimizer.size() && optimizer[o].parameter == parameter; ++o)
        write_tensor(*optimizer_file, optimizer[o]);
      if (written) written(parameter);
    }
    add(model_name, model, model_file.finish());
    if (optimizer_file) add(kOptimizerName, optimizer, optimizer_file->finish());
  }
  void add(std::string_view name, const std::vector<SavedTensor>& tensors, const WrittenFile& written) {
    manifest_["files"][name] = file_entry(written.size, written.hash);
    manifest_["tensors"][name] = tensor_entries(tensors, written);
  }
  void write_text(std::string_view name, const std::string& text) {
    const auto file = files_.create(join_path(folder_, name));
    file->write(text);
    file->sync();
    file->close();
    if (name == kManifestName) return;
    manifest_["files"][name] = file_entry(text.size(), hash_bytes(std::as_bytes(std::span(text))));
  }

  FileSystem& files_;
  const CheckpointContents& contents_;
  const std::string folder_;
  Json manifest_;
};

// Gives the finished folder its name; an older checkpoint of that step steps aside first.
void publish(FileSystem& files, const CheckpointContents& contents, const std::string& folder) {
  const std::string path = checkpoint_path(contents.output_dir, contents.step);
  const std::string aside = join_path(contents.output_dir, format("{}{}", kReplacedPrefix, contents.step));
  const bool replaces = files.exists(path);
  if (replaces) {
    files.remove(aside);
    files.rename(path, aside);
  }
  try {
    files.rename(folder, path);
  } catch (const Error&) {
    if (replaces) files.rename(aside, path);
    throw;
  }
  files.sync_directory(contents.output_dir);
  if (replaces) remove_quietly(files, aside);
}

// A folder whose manifest can be read and whose files have their sizes; contents are not hashed.
bool looks_complete(FileSystem& files, const std::string& path) {
  try {
    const Json manifest = parse_json(files.read(join_path(path, kManifestName)), path, kStateLimits);
    for (const auto& [name, entry] : manifest.at("files").as_object()) {
      if (!is_file_name(name) ||
          std::cmp_not_equal(files.size(join_path(path, name)), entry.at("size").as_int())) {
        return false;
      }
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::string checkpoint_path(const std::string& output_dir, std::int64_t step) {
  return join_path(output_dir, format("{}{}", kCheckpointPrefix, step));
}

std::uint64_t checkpoint_size(const CheckpointContents& contents) {
  std::uint64_t size = SafetensorsWriter::file_size(specs_of(contents.model)) + contents.state.dump(2).size();
  if (!contents.optimizer.empty()) size += SafetensorsWriter::file_size(specs_of(contents.optimizer));
  for (const auto& [name, text] : contents.files) size += text.size();
  return size;
}

void check_space(FileSystem& files, const CheckpointContents& contents) {
  // The manifest, and what file systems round up.
  const std::uint64_t entries = contents.model.size() + contents.optimizer.size() + contents.files.size();
  const std::uint64_t needed = checkpoint_size(contents) + entries * 512 + (std::uint64_t{1} << 16);
  const std::uint64_t available = files.free_space(contents.output_dir);
  if (needed <= available) return;
  fail(ErrorKind::data,
       "{}: a checkpoint needs {} ({} bytes), the disk has {} ({} bytes) left; free space, lower "
       "save_total_limit or "
       "choose another output_dir; earlier checkpoints are intact",
       contents.output_dir, format_bytes(needed), needed, format_bytes(available), available);
}

std::string save_checkpoint(FileSystem& files, const CheckpointContents& contents,
                            const std::function<void(std::size_t)>& written) {
  check_contents(contents);
  check_space(files, contents);
  const std::string folder = unfinished_path(contents.output_dir, contents.step);
  try {
    Save(files, contents, folder).run(written);
    publish(files, contents, folder);
  } catch (const Error& error) {
    remove_quietly(files, folder);
    fail(error.kind(), "checkpoint-{} was not saved ({} bytes needed), earlier checkpoints are intact: {}",
         contents.step, checkpoint_size(contents), error.what());
  }
  return checkpoint_path(contents.output_dir, contents.step);
}

std::vector<FoundCheckpoint> list_checkpoints(FileSystem& files, const std::string& output_dir) {
  std::vector<FoundCheckpoint> found;
  if (!files.is_directory(output_dir)) return found;
  for (const std::string& name : files.list(output_dir)) {
    const std::optional<std::int64_t> step = step_of(name, kCheckpointPrefix);
    if (step && files.is_directory(join_path(output_dir, name)))
      found.push_back({*step, join_path(output_dir, name)});
  }
  std::ranges::sort(found, {}, &FoundCheckpoint::step);
  return found;
}

std::vector<CheckpointReport> check_checkpoints(FileSystem& files, const std::string& path, int threads) {
  std::vector<CheckpointReport> reports;
  for (const FoundCheckpoint& found : list_checkpoints(files, path)) {
    reports.push_back(verify_checkpoint(files, found.path, threads));
  }
  if (!reports.empty()) return reports;
  if (!files.is_directory(path)) fail(ErrorKind::data, "{}: no such folder", path);
  const auto has = [&](std::string_view name) { return files.exists(join_path(path, name)); };
  if (!has(kManifestName) && !has(kModelName) && !has(kAdapterName)) {
    fail(ErrorKind::data, "{}: neither a checkpoint nor a folder of checkpoint-<step> folders", path);
  }
  return {verify_checkpoint(files, path, threads)};
}

LatestCheckpoint find_latest_checkpoint(FileSystem& files, const std::string& output_dir, int threads) {
  LatestCheckpoint latest;
  std::vector<FoundCheckpoint> found = list_checkpoints(files, output_dir);
  for (; !found.empty(); found.pop_back()) {
    CheckpointReport report = verify_checkpoint(files, found.back().path, threads);
    if (report.sound()) {
      latest.found = found.back();
      break;
    }
    latest.damaged.push_back(std::move(report));
  }
  return latest;
}

Json read_checkpoint_state(FileSystem& files, const std::string& path) {
  const std::string file = join_path(path, kStateName);
  return parse_json(files.read(file), file, kStateLimits);
}

std::vector<FoundCheckpoint> prune_checkpoints(FileSystem& files, const std::string& output_dir,
                                               int total_limit, std::int64_t keep_step) {
  std::vector<FoundCheckpoint> removed;
  if (total_limit <= 0) return removed;
  std::vector<FoundCheckpoint> found = list_checkpoints(files, output_dir);
  std::erase_if(found, [&](const FoundCheckpoint& f) { return !looks_complete(files, f.path); });
  std::size_t left = found.size();
  for (std::size_t i = 0; i + 1 < found.size() && left > static_cast<std::size_t>(total_limit); ++i) {
    if (found[i].step == keep_step) continue;
    // Renamed first: a kill in the middle of the removal leaves no half checkpoint under its name.
    const std::string hidden = join_path(output_dir, format("{}{}", kRemovedPrefix, found[i].step));
    files.remove(hidden);
    files.rename(found[i].path, hidden);
    files.sync_directory(output_dir);
    files.remove(hidden);
    removed.push_back(found[i]);
    --left;
  }
  return removed;
}

void clean_leftovers(FileSystem& files, const std::string& output_dir) {
  if (!files.is_directory(output_dir)) return;
  for (const std::string& name : files.list(output_dir)) {
    const std::string path = join_path(output_dir, name);
    if (const auto step = step_of(name, kReplacedPrefix)) {
      // Killed between the two renames of a replacement: the older one is the only one of its step.
      const std::string home = checkpoint_path(output_dir, *step);
      if (!files.exists(home)) {
        files.rename(path, home);
        continue;
      }
    }
    if (step_of(name, kReplacedPrefix) || step_of(name, kUnfinishedPrefix) || step_of(name, kRemovedPrefix)) {
      files.remove(path);
    }
  }
}

}  // namespace lode
