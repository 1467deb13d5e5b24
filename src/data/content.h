// What files hold, by hash, without reading again those that have not changed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/file.h"
#include "data/sources.h"

namespace lode {

// How the system tells that a file is still the one it was.
struct FileStamp {
  std::int64_t size = 0, modified_ns = 0, changed_ns = 0, inode = 0, device = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};
FileStamp stamp_of(const std::string& path);  // throws Error(data)

struct FileContent {
  FileStamp stamp;
  std::string hash;
};

// In the order of `sources`. Hashes are remembered in the folder `cache` (one file for each list of paths)
// with the stamps of their files; a file that changed within the last fifth of a second is not remembered,
// since a change after that might leave the same stamp.
std::vector<FileContent> hash_contents(FileSystem& files, const std::vector<SourceFile>& sources,
                                       const std::string& cache, int threads);

}  // namespace lode
