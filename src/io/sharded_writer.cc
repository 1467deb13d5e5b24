#include "io/sharded_writer.h"

#include <algorithm>

#include "core/fail.h"
#include "core/json.h"

namespace lode {
namespace {

std::uint64_t tensor_bytes(const TensorSpec& spec) {
  const MatrixSize size = matrix_size(spec.shape);
  return static_cast<std::uint64_t>(size.rows) * static_cast<std::uint64_t>(size.cols) * size_of(spec.dtype);
}

// First tensor of each shard.
std::vector<std::size_t> shard_begins(const std::vector<TensorSpec>& specs, std::uint64_t limit) {
  std::vector<std::size_t> begins{0};
  std::uint64_t used = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const std::uint64_t bytes = tensor_bytes(specs[i]);
    if (i != begins.back() && used + bytes > limit) {
      begins.push_back(i);
      used = 0;
    }
    used += bytes;
  }
  return begins;
}

}  // namespace

std::vector<std::string> write_sharded_safetensors(FileSystem& files, const std::string& folder,
                                                   const std::vector<TensorSpec>& specs,
                                                   std::uint64_t shard_bytes,
                                                   const std::function<ConstView(std::size_t)>& view) {
  const std::vector<std::size_t> begins = shard_begins(specs, shard_bytes);
  std::vector<std::string> names;
  std::vector<std::pair<std::string, std::string>> places;  // tensor, file
  std::uint64_t total = 0;
  for (std::size_t s = 0; s < begins.size(); ++s) {
    const std::size_t begin = begins[s], end = s + 1 < begins.size() ? begins[s + 1] : specs.size();
    names.push_back(begins.size() == 1 ? "model.safetensors"
                                       : format("model-{:05}-of-{:05}.safetensors", s + 1, begins.size()));
    const auto at = [&](std::size_t i) { return specs.begin() + static_cast<std::ptrdiff_t>(i); };
    SafetensorsWriter writer(files, join_path(folder, names.back()), {at(begin), at(end)});
    for (std::size_t i = begin; i < end; ++i) {
      writer.write(view(i));
      places.emplace_back(specs[i].name, names.back());
      total += tensor_bytes(specs[i]);
    }
    writer.finish();
  }
  if (names.size() > 1) {
    std::ranges::sort(places);
    Json index =
        Json::object({{"metadata", Json::object({{"total_size", total}})}, {"weight_map", Json::object()}});
    for (const auto& [tensor, file] : places) index["weight_map"].as_object().emplace_back(tensor, file);
    names.push_back("model.safetensors.index.json");
    write_file_atomically(files, join_path(folder, names.back()), index.dump(2) + "\n");
  }
  return names;
}

}  // namespace lode
