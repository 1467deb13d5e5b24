#include <utility>

#include "core/fail.h"
#include "core/json.h"
#include "core/parallel.h"
#include "io/checkpoint.h"
#include "io/checkpoint_names.h"

namespace lode {
namespace {

Json shape_json(const Shape& shape) {
  Json json = Json::array();
  for (const std::int64_t size : shape) json.push_back(size);
  return json;
}

std::string_view last_name(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  return path.substr(path.rfind('/') + 1);
}

// Checks one checkpoint; every problem is collected, none stops the rest.
class Verifier {
 public:
  Verifier(FileSystem& files, CheckpointReport& report, int threads)
      : files_(files), report_(report), threads_(threads) {}

  void run() {
    Json manifest;
    if (!read_manifest(manifest)) return;
    const Json *entries = manifest.find("files"), *tensors = manifest.find("tensors");
    if (entries->find(kModelName) == nullptr && entries->find(kAdapterName) == nullptr) {
      problem(kManifestName, format("does not list {}", kModelName));
    }
    if (entries->find(kStateName) == nullptr) problem(kManifestName, format("does not list {}", kStateName));
    for (const auto& [name, lists] : tensors->as_object()) {
      if (entries->find(name) == nullptr)
        problem(kManifestName, format("lists tensors of \"{}\" but not the file", name));
    }
    for (const auto& [name, entry] : entries->as_object()) {
      const std::size_t before = report_.problems.size();
      try {
        check_file(name, entry, tensors->find(name));
      } catch (const Error& error) {
        report_.problems.push_back(error.what());
      }
      if (report_.problems.size() == before) report_.good_files.push_back(name);
    }
  }

 private:
  void problem(std::string_view file, std::string_view text) {
    report_.problems.push_back(format("{}: {}", file, text));
  }

  bool read_manifest(Json& manifest) {
    const std::string path = join_path(report_.path, kManifestName);
    if (!files_.exists(path)) {
      problem(kManifestName, "missing: the checkpoint was not finished");
      return false;
    }
    try {
      manifest = parse_json(files_.read(path), path, {.max_depth = 8, .max_values = 10'000'000});
      return check_manifest(manifest);
    } catch (const Error& error) {
      report_.problems.push_back(error.what());
      return false;
    }
  }

  bool check_manifest(const Json& manifest) {
    const std::size_t before = report_.problems.size();
    if (manifest.at("format").as_string() != kFormatName)
      problem(kManifestName, "not a manifest of Lodestone");
    const std::int64_t version = manifest.at("format_version").as_int();
    if (version > kCheckpointVersion) {
      problem(kManifestName,
              format("format version {} is newer than this program, which reads up to {}; use a newer one",
                     version, kCheckpointVersion));
      return false;
    }
    if (version < 1) problem(kManifestName, format("format version {} does not exist", version));
    report_.step = manifest.at("step").as_int();
    const std::string_view folder = last_name(report_.path);
    if (folder.starts_with(kCheckpointPrefix) && folder != format("{}{}", kCheckpointPrefix, report_.step)) {
      problem(kManifestName, format("is of step {}, the folder's name is {}", report_.step, folder));
    }
    if (manifest.at("hash").as_string() != kHashName) problem(kManifestName, "unknown kind of hash");
    for (const std::string_view key : {"files", "tensors"}) manifest.at(key).as_object();
    if (manifest.size() != 6) problem(kManifestName, "has keys that its version does not know");
    return report_.problems.size() == before;
  }

  void check_file(const std::string& name, const Json& entry, const Json* tensors) {
    if (!is_file_name(name) || name == kManifestName) {
      return problem(kManifestName, format("\"{}\" is no name of a file of a checkpoint", name));
    }
    const std::string path = join_path(report_.path, name);
    const std::int64_t size = entry.at("size").as_int();
    const std::string& hash = entry.at("hash").as_string();
    if (entry.size() != 2) problem(kManifestName, format("\"{}\" has unknown keys", name));
    if (!files_.exists(path)) return problem(name, "missing");
    const auto file = files_.map(path);
    const bool same_size = std::cmp_equal(file->bytes().size(), size);
    if (!same_size) problem(name, format("{} bytes, {} expected", file->bytes().size(), size));
    const bool same = same_size && hash_text(hash_bytes(file->bytes())) == hash;
    if (name.ends_with(".safetensors")) {
      if (tensors == nullptr) {
        problem(kManifestName, format("lists no tensors of {}", name));
      } else {
        check_tensors(name, path, *tensors);
      }
    }
    if (same_size && !same) problem(name, "contents are not those that were saved");
  }

  void check_tensors(const std::string& name, const std::string& path, const Json& entries) {
    const SafetensorsFile file(files_, path);
    const Json::Object& listed = entries.as_object();
    // As many names, each found, and unique on both sides: none is extra.
    if (listed.size() != file.tensors().size()) {
      problem(name, format("{} tensors, {} expected", file.tensors().size(), listed.size()));
    }
    std::vector<std::string> problems(listed.size());
    parallel_tasks(threads_, static_cast<std::int64_t>(listed.size()), [&](std::int64_t task, int) {
      const auto& [tensor, entry] = listed[static_cast<std::size_t>(task)];
      problems[static_cast<std::size_t>(task)] = problem_of(file, tensor, entry);
    });
    for (std::size_t i = 0; i < listed.size(); ++i) {
      if (!problems[i].empty()) problem(name, format("tensor \"{}\" {}", listed[i].first, problems[i]));
    }
  }

  static std::string problem_of(const SafetensorsFile& file, const std::string& tensor, const Json& entry) {
    const TensorInfo* info = file.find(tensor);
    if (info == nullptr) return "is missing";
    if (entry.size() != 3 || entry.at("dtype").as_string() != info->dtype ||
        entry.at("shape") != shape_json(info->shape)) {
      return format("is {} {}, which the manifest does not say", info->dtype, shape_text(info->shape));
    }
    if (hash_text(hash_bytes(file.bytes(*info))) != entry.at("hash").as_string()) return "is damaged";
    return "";
  }

  FileSystem& files_;
  CheckpointReport& report_;
  int threads_;
};

}  // namespace

CheckpointReport verify_checkpoint(FileSystem& files, const std::string& path, int threads) {
  CheckpointReport report;
  report.path = path;
  if (!files.is_directory(path)) {
    report.problems.push_back(format("{}: no such folder", path));
    return report;
  }
  Verifier(files, report, threads).run();
  return report;
}

}  // namespace lode
