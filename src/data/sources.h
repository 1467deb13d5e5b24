// The files that a data set's paths name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "data/byte_reader.h"

namespace lode {

enum class FileFormat { text, json, csv };

struct SourceFile {
  std::string path;
  FileFormat format = FileFormat::text;
  Compression compression = Compression::none;
};

// Each path is a file, a folder (searched with its sub-folders, in sorted order; files of other kinds and
// hidden ones are left out) or a pattern with * ? [..] in its components, ** meaning any folders. A path that
// exists is taken as it is. Known names: .txt .md .json .jsonl, each also with .gz or .zst. Throws
// Error(data) naming the path that does not exist, has an unknown ending or yields no file. With `csv`, .csv
// files count as data files too.
std::vector<SourceFile> find_sources(FileSystem& files, const std::vector<std::string>& paths,
                                     bool csv = false);

}  // namespace lode
