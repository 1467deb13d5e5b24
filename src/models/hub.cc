#include "models/hub.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "core/fail.h"

namespace lode {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string hub_cache() {
  if (const std::string cache = variable("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = variable("HF_HOME"); !home.empty()) return join_path(home, "hub");
  if (const std::string base = variable("XDG_CACHE_HOME"); !base.empty())
    return join_path(base, "huggingface/hub");
  return join_path(variable("HOME"), ".cache/huggingface/hub");
}

}  // namespace

bool looks_like_hub_id(const std::string& name) {
  return std::ranges::count(name, '/') == 1 && name.front() != '/' && name.front() != '.' &&
         !name.ends_with('/') && !name.ends_with(".json") && !name.ends_with(".gguf");
}

std::string resolve_model_path(FileSystem& files, const std::string& name) {
  if (name.empty() || files.exists(name) || !looks_like_hub_id(name)) return name;
  std::string folder = "models--" + name;
  folder.replace(folder.find('/'), 1, "--");
  const std::string repository = join_path(hub_cache(), folder);
  std::string revision;
  if (const std::string ref = join_path(repository, "refs/main"); files.exists(ref))
    revision = files.read(ref);
  while (!revision.empty() && static_cast<unsigned char>(revision.back()) <= ' ') revision.pop_back();
  const bool plain = !revision.empty() && revision.find('/') == std::string::npos && revision.front() != '.';
  const std::string snapshot = join_path(join_path(repository, "snapshots"), revision);
  if (!plain || !files.is_directory(snapshot)) {
    fail(ErrorKind::data,
         "{}: no such file or folder, and no snapshot of a hub model of that name in {} (nothing is "
         "downloaded: fetch it "
         "with `hf download {}`, or give the path of a folder)",
         name, repository, name);
  }
  return snapshot;
}

}  // namespace lode
