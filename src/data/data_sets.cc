#include "data/data_sets.h"

#include <algorithm>

#include "core/fail.h"

namespace lode {
namespace {

constexpr std::string_view kRegistry = "dataset_info.json";

// The registry of a data folder; nothing when there is none.
struct Registry {
  std::string path, folder;
  Json json = Json::object();

  std::string names() const {
    std::string names;
    for (const auto& [name, value] : json.as_object()) names += (names.empty() ? "" : ", ") + name;
    return names.empty() ? "none" : names;
  }
};

Registry open_registry(FileSystem& files, const std::string& folder) {
  std::vector<std::string> folders = {folder};
  if (folder.empty()) folders = {"data", "."};
  for (const std::string& candidate : folders) {
    const std::string path = join_path(candidate, kRegistry);
    if (!files.exists(path)) continue;
    Registry registry{path, candidate, parse_json(files.read(path), path)};
    if (!registry.json.is_object()) {
      fail(ErrorKind::data, "{}: expected an object with one entry for each data set, found {}", path,
           registry.json.type_name());
    }
    return registry;
  }
  return {};
}

// One entry of the registry; every key is used or refused.
class Description {
 public:
  Description(const Registry& registry, const std::string& name, const Json& json)
      : registry_(registry), name_(name), json_(json) {
    if (!json.is_object()) problem("expected an object, found {}", json.type_name());
  }

  DataSetSource read(FileSystem& files) {
    DataSetSource set;
    set.name = name_;
    std::vector<std::string> paths;
    for (const auto& [key, value] : json_.as_object()) {
      if (key == "file_name") {
        paths = read_paths(value);
      } else if (key == "formatting") {
        set.schema.format = read_format(string(key, value));
      } else if (key == "columns") {
        read_columns(value, set.schema.columns);
      } else if (key == "tags") {
        read_tags(value, set.schema.tags);
      } else if (key == "num_samples") {
        if (value.is_null()) continue;
        if (!value.is_int() || value.as_int() <= 0) problem("num_samples: expected a number from 1 up");
        set.num_samples = value.as_int();
      } else {
        refuse(key, value);
      }
    }
    if (paths.empty()) problem("file_name is missing: name a file or folder beside {}", kRegistry);
    set.files = find_sources(files, paths, true);
    return set;
  }

 private:
  template <class... Args>
  [[noreturn]] void problem(std::string_view pattern, const Args&... args) const {
    fail(ErrorKind::data, "{}: {}: {}", registry_.path, name_, format(pattern, args...));
  }
  const std::string& string(const std::string& key, const Json& value) const {
    if (!value.is_string()) problem("{}: expected a string, found {}", key, value.type_name());
    return value.as_string();
  }

  std::vector<std::string> read_paths(const Json& value) const {
    std::vector<std::string> paths;
    if (!value.is_array()) return {join_path(registry_.folder, string("file_name", value))};
    for (const Json& path : value.as_array())
      paths.push_back(join_path(registry_.folder, string("file_name", path)));
    return paths;
  }

  ChatFormat read_format(const std::string& name) const {
    if (name == "alpaca") return ChatFormat::alpaca;
    if (name == "sharegpt") return ChatFormat::sharegpt;
    if (name == "openai") return ChatFormat::messages;
    problem("formatting: unknown format \"{}\"; known are alpaca, sharegpt and openai", name);
  }

  void read_columns(const Json& value, ChatColumns& columns) const {
    const std::pair<std::string_view, std::optional<std::string>*> known[] = {
        {"prompt", &columns.prompt},     {"query", &columns.query},           {"response", &columns.response},
        {"history", &columns.history},   {"system", &columns.system},         {"tools", &columns.tools},
        {"messages", &columns.messages}, {"completion", &columns.completion}, {"text", &columns.text}};
    read_names("columns", value, known);
  }
  void read_tags(const Json& value, ChatTags& tags) const {
    const std::pair<std::string_view, std::optional<std::string>*> known[] = {
        {"role_tag", &tags.role},
        {"content_tag", &tags.content},
        {"user_tag", &tags.user},
        {"assistant_tag", &tags.assistant},
        {"observation_tag", &tags.observation},
        {"function_tag", &tags.function},
        {"system_tag", &tags.system}};
    read_names("tags", value, known);
  }
  void read_names(std::string_view where, const Json& value,
                  std::span<const std::pair<std::string_view, std::optional<std::string>*>> known) const {
    if (!value.is_object()) problem("{}: expected an object, found {}", where, value.type_name());
    for (const auto& [key, name] : value.as_object()) {
      const auto at = std::ranges::find(known, key, [](const auto& entry) { return entry.first; });
      if (at == known.end()) {
        std::string names;
        for (const auto& entry : known) names += (names.empty() ? "" : ", ") + std::string(entry.first);
        problem("{}.{} is not supported; known are {}", where, key, names);
      }
      if (name.is_null()) continue;
      *at->second = string(format("{}.{}", where, key), name);
    }
  }

  [[noreturn]] void refuse_hub(const std::string& key) const {
    problem("{}: data sets are not downloaded; fetch the files and name them with file_name", key);
  }
  void refuse(const std::string& key, const Json& value) const {
    if (key == "hf_hub_url" || key == "ms_hub_url" || key == "om_hub_url" || key == "cloud_file_name") {
      // An entry may name several places; with file_name the local one is taken.
      if (json_.find("file_name") == nullptr) refuse_hub(key);
    } else if (key == "script_url") {
      problem("script_url: loading scripts are not run; convert the data to JSON lines and use file_name");
    } else if (key == "subset" || key == "folder" || (key == "split" && value != Json("train"))) {
      if (!value.is_null())
        problem("{}: parts of hub data sets do not exist here; name the part's files with file_name", key);
    } else if (key == "ranking" && value == Json(true)) {
      problem("ranking: preference pairs belong to other stages than pt and sft");
    } else if (key != "split" && key != "ranking" && key != "file_sha1") {
      problem("unknown key {}; known are file_name, formatting, columns, tags and num_samples", key);
    }
  }

  const Registry& registry_;
  const std::string& name_;
  const Json& json_;
};

DataSetSource find_one(FileSystem& files, const Registry& registry, const std::string& folder,
                       const std::string& entry) {
  if (const Json* json = registry.json.find(entry)) return Description(registry, entry, *json).read(files);
  const std::string path = folder.empty() ? entry : join_path(folder, entry);
  const bool pattern = entry.find_first_of("*?[") != std::string::npos;
  if (!files.exists(path) && !pattern) {
    if (registry.path.empty()) {
      fail(ErrorKind::data, "data set {}: no such file or folder, and there is no {}", path,
           folder.empty() ? join_path("data", kRegistry) : join_path(folder, kRegistry));
    }
    fail(ErrorKind::data, "data set {}: neither in {} nor a file or folder; {} has: {}", entry, registry.path,
         kRegistry, registry.names());
  }
  DataSetSource set;
  set.name = entry;
  set.files = find_sources(files, {path}, true);
  std::erase_if(set.files, [](const SourceFile& file) {
    return file.path == kRegistry || file.path.ends_with(format("/{}", kRegistry));
  });
  if (set.files.empty()) fail(ErrorKind::data, "{}: holds no data file", path);
  return set;
}

}  // namespace

std::vector<DataSetSource> find_data_sets(FileSystem& files, const std::string& folder,
                                          const std::vector<std::string>& entries) {
  const Registry registry = open_registry(files, folder);
  std::vector<DataSetSource> sets;
  for (const std::string& entry : entries) sets.push_back(find_one(files, registry, folder, entry));
  return sets;
}

}  // namespace lode
