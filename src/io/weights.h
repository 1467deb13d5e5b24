// A model's weights on disk, one safetensors file or several behind an index, and their loading into views.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace lode {

class WeightSet {
 public:
  struct Entry {
    const SafetensorsFile* file;
    const TensorInfo* info;
  };

  // path: a .safetensors file, an index (.safetensors.index.json) or a model folder, in which
  // model.safetensors comes before the index. Throws Error(data).
  WeightSet(FileSystem& files, const std::string& path);

  const std::string& path() const { return path_; }
  const std::map<std::string_view, Entry>& tensors() const { return tensors_; }

 private:
  void add(FileSystem& files, const std::string& path);
  void read_index(FileSystem& files, const std::string& path);

  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string_view, Entry> tensors_;
};

// Where one tensor goes.
struct TensorTarget {
  std::string name;
  Shape shape;              // expected in the file
  View view;                // of that matrix, or of its transpose; without data it is checked and not copied
  bool transposed = false;  // the view is the transpose of the file's matrix
  // Of one that is not transposed: the view holds the rows of the file's matrix that begin here.
  std::int64_t first_row = 0;
};

// The most of a file that is in memory for each thread while it is loaded; one row, if that is more.
inline constexpr std::int64_t kLoadedAtOnce = std::int64_t{4} << 20;  // bytes

struct LoadOptions {
  int threads = 1;
  // Says which tensors of the file may be left aside; without it every one must have a target.
  std::function<bool(std::string_view name)> may_ignore;
};

// Everything that is wrong: missing and extra tensors, shapes, element types. Empty when loading will
// succeed.
std::vector<std::string> find_load_problems(const WeightSet& weights,
                                            const std::vector<TensorTarget>& targets,
                                            const LoadOptions& options);

// Converts and copies every target. Throws Error(data) with all problems before anything is copied. Memory of
// the files is given back as it has been read.
void load_tensors(const WeightSet& weights, const std::vector<TensorTarget>& targets,
                  const LoadOptions& options);

}  // namespace lode
