#include "data/sources.h"

#include <fnmatch.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/fail.h"

namespace lode {
namespace {

std::string_view known_kinds(bool csv) {
  return csv ? ".txt, .md, .json, .jsonl and .csv, each also with .gz or .zst"
             : ".txt, .md, .json and .jsonl, each also with .gz or .zst";
}
constexpr int kDeepest = 64;  // folders within folders; more is a loop of links

bool strip(std::string_view& name, std::string_view ending) {
  if (!name.ends_with(ending)) return false;
  name.remove_suffix(ending.size());
  return true;
}

std::optional<SourceFile> classify(const std::string& path, bool csv) {
  SourceFile source{path};
  std::string_view name = path;
  if (strip(name, ".gz")) {
    source.compression = Compression::gzip;
  } else if (strip(name, ".zst")) {
    source.compression = Compression::zstd;
  }
  if (strip(name, ".txt") || strip(name, ".md")) {
    source.format = FileFormat::text;
  } else if (strip(name, ".jsonl") || strip(name, ".json")) {
    source.format = FileFormat::json;
  } else if (csv && strip(name, ".csv")) {
    source.format = FileFormat::csv;
  } else {
    return std::nullopt;
  }
  return source;
}

void check_depth(const std::string& path, int depth) {
  if (depth > kDeepest)
    fail(ErrorKind::data, "{}: folders nested deeper than {}; is a link circular?", path, kDeepest);
}

void add_folder(FileSystem& files, const std::string& folder, int depth, bool csv,
                std::vector<SourceFile>& found) {
  check_depth(folder, depth);
  for (const std::string& name : files.list(folder)) {
    if (name.starts_with('.')) continue;
    const std::string path = join_path(folder, name);
    if (files.is_directory(path)) {
      add_folder(files, path, depth + 1, csv, found);
    } else if (auto source = classify(path, csv)) {
      found.push_back(std::move(*source));
    }
  }
}

bool is_pattern(std::string_view text) {
  return text.find_first_of("*?[") != std::string_view::npos;
}

std::vector<std::string> split_path(std::string_view path) {
  std::vector<std::string> parts;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    if (end > 0) parts.emplace_back(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return parts;
}

// Appends what matches parts[at..] below `base` ("" is the working folder).
void match(FileSystem& files, const std::string& base, const std::vector<std::string>& parts, std::size_t at,
           int depth, std::vector<std::string>& found) {
  check_depth(base, depth);
  if (at == parts.size()) {
    found.push_back(base);
    return;
  }
  const std::string& part = parts[at];
  if (!is_pattern(part)) {
    const std::string path = join_path(base, part);
    if (files.exists(path)) match(files, path, parts, at + 1, depth + 1, found);
    return;
  }
  const std::string folder = base.empty() ? "." : base;
  if (!files.is_directory(folder)) return;
  const bool any_folders = part == "**";
  if (any_folders) match(files, base, parts, at + 1, depth + 1, found);
  for (const std::string& name : files.list(folder)) {
    const std::string path = join_path(base, name);
    if (any_folders) {
      if (!name.starts_with('.') && files.is_directory(path)) match(files, path, parts, at, depth + 1, found);
    } else if (::fnmatch(part.c_str(), name.c_str(), FNM_PERIOD) == 0) {
      match(files, path, parts, at + 1, depth + 1, found);
    }
  }
}

void add_pattern(FileSystem& files, const std::string& pattern, bool csv, std::vector<SourceFile>& found) {
  std::vector<std::string> paths;
  match(files, pattern.starts_with('/') ? "/" : "", split_path(pattern), 0, 0, paths);
  std::ranges::sort(paths);
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  for (const std::string& path : paths) {
    if (files.is_directory(path)) {
      add_folder(files, path, 0, csv, found);
    } else if (auto source = classify(path, csv)) {
      found.push_back(std::move(*source));
    }
  }
}

void add_path(FileSystem& files, const std::string& path, bool csv, std::vector<SourceFile>& found) {
  const std::size_t before = found.size();
  if (files.is_directory(path)) {
    add_folder(files, path, 0, csv, found);
    if (found.size() == before)
      fail(ErrorKind::data, "{}: the folder holds no data file ({})", path, known_kinds(csv));
  } else if (files.exists(path)) {
    auto source = classify(path, csv);
    if (!source) fail(ErrorKind::data, "{}: unknown kind of data file; expected {}", path, known_kinds(csv));
    found.push_back(std::move(*source));
  } else if (is_pattern(path)) {
    add_pattern(files, path, csv, found);
    if (found.size() == before)
      fail(ErrorKind::data, "{}: no data file matches this pattern ({})", path, known_kinds(csv));
  } else {
    fail(ErrorKind::data, "{}: no such file or folder", path);
  }
}

}  // namespace

std::vector<SourceFile> find_sources(FileSystem& files, const std::vector<std::string>& paths, bool csv) {
  std::vector<SourceFile> found;
  for (const std::string& path : paths) add_path(files, path, csv, found);
  return found;
}

}  // namespace lode
