#include "io/weights.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "core/fail.h"
#include "core/json.h"
#include "core/parallel.h"
#include "io/copy_block.h"

namespace lode {
namespace {

constexpr std::string_view kIndexEnding = ".safetensors.index.json";
constexpr std::size_t kMostProblemsShown = 50;
constexpr std::int64_t kMostIndexValues = 300'000;  // the largest public models have 100,000 tensors

// A shard's name comes from a file: it may only name a neighbour of the index.
bool is_plain_name(std::string_view name) {
  return name.ends_with(".safetensors") &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos &&
         name.find("..") == std::string_view::npos;
}

// Says what the folder has instead of weights that can be read.
[[noreturn]] void refuse_folder(FileSystem& files, const std::string& path) {
  std::string pickled;
  for (const std::string& name : files.list(path)) {
    const bool weights = name.ends_with(".pt") || name.ends_with(".pth") || name.ends_with(".ckpt") ||
                         (name.ends_with(".bin") && name.starts_with("pytorch_model"));
    if (weights) pickled += (pickled.empty() ? "" : ", ") + name;
  }
  if (!pickled.empty()) {
    fail(ErrorKind::data,
         "{}: has only {}; pickled files can run code and are never read: load the model in transformers and "
         "save_pretrained() it, which writes safetensors",
         path, pickled);
  }
  fail(ErrorKind::data, "{}: no model.safetensors and no model.safetensors.index.json", path);
}

// Element types that are read: those of tensors here, and F64, which becomes f32 first.
constexpr std::string_view kDouble = "F64";

bool is_readable(const TensorInfo& info, DType to) {
  if (info.dtype == kDouble) return to != DType::i32;
  const auto dtype = dtype_from_safetensors(info.dtype);
  return dtype && is_convertible(*dtype, to);
}

// Rows [first, first + count) of the file's matrix.
struct CopyTask {
  const TensorTarget* target;
  const SafetensorsFile* file;
  const std::byte* data;
  std::optional<DType> dtype;  // nothing: F64
  std::int64_t first, count, cols;
};

void convert_rows(const CopyTask& task) {
  const View& view = task.target->view;
  const auto to = static_cast<std::int64_t>(size_of(view.dtype));
  ByteStrides strides{view.stride * to, to};
  if (task.target->transposed) std::swap(strides.row, strides.col);
  auto* out = static_cast<std::byte*>(view.data) + (task.first - task.target->first_row) * strides.row;
  if (task.dtype) {
    const auto from = static_cast<std::int64_t>(size_of(*task.dtype));
    copy_block(task.data + task.first * task.cols * from, *task.dtype, {task.cols * from, from}, out,
               view.dtype, strides, task.count, task.cols);
    return;
  }
  std::vector<float> values(static_cast<std::size_t>(task.count * task.cols));
  for (std::size_t i = 0; i < values.size(); ++i) {
    double value;
    std::memcpy(&value, task.data + (static_cast<std::size_t>(task.first * task.cols) + i) * sizeof(double),
                sizeof(double));
    values[i] = static_cast<float>(value);
  }
  constexpr std::int64_t kFloat = sizeof(float);
  copy_block(reinterpret_cast<const std::byte*>(values.data()), DType::f32, {task.cols * kFloat, kFloat}, out,
             view.dtype, strides, task.count, task.cols);
}

void run(const CopyTask& task) {
  convert_rows(task);
  const auto row_bytes =
      static_cast<std::size_t>(task.cols) * (task.dtype ? size_of(*task.dtype) : sizeof(double));
  task.file->give_back({task.data + static_cast<std::size_t>(task.first) * row_bytes,
                        static_cast<std::size_t>(task.count) * row_bytes});
}

}  // namespace

WeightSet::WeightSet(FileSystem& files, const std::string& path) : path_(path) {
  if (!files.is_directory(path)) {
    if (path.ends_with(kIndexEnding)) {
      read_index(files, path);
    } else {
      add(files, path);
    }
    return;
  }
  const std::string single = join_path(path, "model.safetensors"),
                    index = join_path(path, "model.safetensors.index.json");
  if (files.exists(single)) {
    add(files, single);
  } else if (files.exists(index)) {
    read_index(files, index);
  } else {
    refuse_folder(files, path);
  }
}

void WeightSet::add(FileSystem& files, const std::string& path) {
  const auto& file = files_.emplace_back(std::make_unique<SafetensorsFile>(files, path));
  for (const TensorInfo& tensor : file->tensors()) {
    const auto [entry, added] = tensors_.emplace(tensor.name, Entry{file.get(), &tensor});
    if (!added) {
      fail(ErrorKind::data, "tensor \"{}\" is in both {} and {}", tensor.name, entry->second.file->path(),
           path);
    }
  }
}

void WeightSet::read_index(FileSystem& files, const std::string& path) {
  const auto text = files.map(path);
  const Json index = parse_json(text->text(), path, {.max_depth = 8, .max_values = kMostIndexValues});
  const Json* map = index.find("weight_map");
  if (map == nullptr || !map->is_object())
    fail(ErrorKind::data, "{}: \"weight_map\" is missing or no object", path);
  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [tensor, shard] : map->as_object()) {
    if (!shard.is_string() || !is_plain_name(shard.as_string())) {
      fail(ErrorKind::data, "{}: tensor \"{}\": {} is no name of a .safetensors file beside the index", path,
           tensor, shard.dump());
    }
    shards[shard.as_string()].push_back(tensor);
  }
  std::string missing;
  for (const auto& [shard, names] : shards) {
    add(files, join_path(parent_path(path), shard));
    for (const std::string& name : names) {
      if (files_.back()->find(name) == nullptr) missing += format("\n  \"{}\" in {}", name, shard);
    }
  }
  if (!missing.empty()) fail(ErrorKind::data, "{}: names tensors that their files lack:{}", path, missing);
}

std::vector<std::string> find_load_problems(const WeightSet& weights,
                                            const std::vector<TensorTarget>& targets,
                                            const LoadOptions& options) {
  std::vector<std::string> problems;
  std::set<std::string_view> wanted;
  for (const TensorTarget& target : targets) {
    if (!wanted.insert(target.name).second) fail(ErrorKind::internal, "\"{}\" has two targets", target.name);
    const auto found = weights.tensors().find(target.name);
    if (found == weights.tensors().end()) {
      problems.push_back(format("\"{}\" {} is missing", target.name, shape_text(target.shape)));
      continue;
    }
    const TensorInfo& info = *found->second.info;
    if (info.shape != target.shape) {
      problems.push_back(format("\"{}\": expected shape {}, found {}", target.name, shape_text(target.shape),
                                shape_text(info.shape)));
    }
    if (!is_readable(info, target.view.dtype)) {
      problems.push_back(format("\"{}\": expected {}, found {}", target.name,
                                target.view.dtype == DType::i32 ? "I32" : "F32, BF16, F16 or F64",
                                info.dtype));
    }
  }
  for (const auto& [name, entry] : weights.tensors()) {
    if (!wanted.contains(name) && !(options.may_ignore && options.may_ignore(name))) {
      problems.push_back(format("\"{}\" {} is not expected", name, shape_text(entry.info->shape)));
    }
  }
  return problems;
}

void load_tensors(const WeightSet& weights, const std::vector<TensorTarget>& targets,
                  const LoadOptions& options) {
  const std::vector<std::string> problems = find_load_problems(weights, targets, options);
  if (!problems.empty()) {
    std::string list;
    for (std::size_t i = 0; i < std::min(problems.size(), kMostProblemsShown); ++i)
      list += "\n  " + problems[i];
    if (problems.size() > kMostProblemsShown)
      list += format("\n  and {} more", problems.size() - kMostProblemsShown);
    fail(ErrorKind::data, "{}: the weights do not fit the model, nothing was loaded:{}", weights.path(),
         list);
  }
  std::vector<CopyTask> tasks;
  for (const TensorTarget& target : targets) {
    if (target.view.data == nullptr) continue;
    const WeightSet::Entry& entry = weights.tensors().at(target.name);
    const MatrixSize size = matrix_size(target.shape);
    LODE_ASSERT(target.view.cols == (target.transposed ? size.rows : size.cols));
    LODE_ASSERT(target.transposed
                    ? target.first_row == 0 && target.view.rows == size.cols
                    : target.first_row >= 0 && target.first_row + target.view.rows <= size.rows);
    const std::int64_t end = target.transposed ? size.rows : target.first_row + target.view.rows;
    const auto dtype = dtype_from_safetensors(entry.info->dtype);
    const auto element = static_cast<std::int64_t>(dtype ? size_of(*dtype) : sizeof(double));
    const std::int64_t row_bytes = std::max<std::int64_t>(size.cols * element, 1);
    // A lone tensor is shared among the threads, too.
    const std::int64_t share = (end - target.first_row + options.threads - 1) / options.threads;
    const std::int64_t rows_a_task = std::max<std::int64_t>(std::min(kLoadedAtOnce / row_bytes, share), 1);
    const std::byte* data = entry.file->bytes(*entry.info).data();
    for (std::int64_t r = target.first_row; r < end && size.cols > 0; r += rows_a_task) {
      tasks.push_back({&target, entry.file, data, dtype, r, std::min(rows_a_task, end - r), size.cols});
    }
  }
  parallel_tasks(options.threads, static_cast<std::int64_t>(tasks.size()),
                 [&](std::int64_t task, int) { run(tasks[static_cast<std::size_t>(task)]); });
}

}  // namespace lode
