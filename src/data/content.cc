#include "data/content.h"

#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <map>

#include "core/fail.h"
#include "core/json.h"
#include "core/parallel.h"
#include "data/digest.h"

namespace lode {
namespace {

constexpr std::int64_t kUnsettledNs = 200'000'000;

std::int64_t nanoseconds(const timespec& time) {
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

std::int64_t wall_clock_ns() {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string memory_path(const std::vector<SourceFile>& sources, const std::string& cache) {
  Digest digest;
  for (const SourceFile& source : sources) digest.field(source.path);
  return join_path(cache, "files-" + digest.hex() + ".json");
}

Json to_json(const FileContent& content) {
  const FileStamp& s = content.stamp;
  return Json::Array{s.size, s.modified_ns, s.changed_ns, s.inode, s.device, content.hash};
}

// What was remembered, by path. Anything unreadable counts as nothing: the files are then hashed again.
std::map<std::string, FileContent> recall(FileSystem& files, const std::string& path) {
  std::map<std::string, FileContent> known;
  if (!files.exists(path)) return known;
  try {
    const Json json = parse_json(files.read(path), path);
    for (const auto& [name, entry] : json.as_object()) {
      const Json::Array& v = entry.as_array();
      if (v.size() != 6) return {};
      known[name] = {{v[0].as_int(), v[1].as_int(), v[2].as_int(), v[3].as_int(), v[4].as_int()},
                     v[5].as_string()};
    }
  } catch (const Error&) {
    return {};
  }
  return known;
}

std::string hash_file(FileSystem& files, const std::string& path) {
  const std::unique_ptr<MappedFile> file = files.map(path);
  return Digest().bytes(file->bytes()).hex();
}

}  // namespace

FileStamp stamp_of(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) fail_file(path, "read its time", errno);
  return {static_cast<std::int64_t>(status.st_size), nanoseconds(status.st_mtim), nanoseconds(status.st_ctim),
          static_cast<std::int64_t>(status.st_ino), static_cast<std::int64_t>(status.st_dev)};
}

std::vector<FileContent> hash_contents(FileSystem& files, const std::vector<SourceFile>& sources,
                                       const std::string& cache, int threads) {
  const std::string path = memory_path(sources, cache);
  const std::map<std::string, FileContent> known = recall(files, path);
  std::vector<FileContent> contents(sources.size());
  std::vector<char> settled(sources.size(), 1), fresh(sources.size(), 0);
  parallel_tasks(threads, static_cast<std::int64_t>(sources.size()), [&](std::int64_t task, int) {
    const auto i = static_cast<std::size_t>(task);
    contents[i].stamp = stamp_of(sources[i].path);
    const auto found = known.find(sources[i].path);
    if (found != known.end() && found->second.stamp == contents[i].stamp) {
      contents[i].hash = found->second.hash;
      return;
    }
    settled[i] = wall_clock_ns() - contents[i].stamp.changed_ns > kUnsettledNs;
    fresh[i] = 1;
    contents[i].hash = hash_file(files, sources[i].path);
  });
  std::map<std::string, Json> settled_files;  // a file may be named twice
  bool changed = false;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (settled[i]) settled_files.emplace(sources[i].path, to_json(contents[i]));
    changed = changed || (fresh[i] && settled[i]);
  }
  if (changed) {
    Json json = Json::object();
    for (auto& [name, entry] : settled_files) json.as_object().emplace_back(name, std::move(entry));
    write_file_atomically(files, path, json.dump());
  }
  return contents;
}

}  // namespace lode
