// The data sets that a recipe names: files, or entries of LLaMA-Factory's dataset_info.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/file.h"
#include "data/chat.h"
#include "data/sources.h"

namespace lode {

struct DataSetSource {
  std::string name;  // as the recipe says
  std::vector<SourceFile> files;
  ChatSchema schema;
  std::int64_t num_samples = 0;  // the first rows only; 0: all
};

// An entry is looked up in `folder`/dataset_info.json ("" means ./data, then the working folder), else it is
// a file, folder or pattern; relative ones lie in `folder`. Throws Error(data) for an entry that is neither,
// listing the data sets that exist, and for a description that asks for what does not exist here (naming the
// key and what to do instead).
std::vector<DataSetSource> find_data_sets(FileSystem& files, const std::string& folder,
                                          const std::vector<std::string>& entries);

}  // namespace lode
