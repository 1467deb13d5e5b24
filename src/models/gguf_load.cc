#include "models/gguf_load.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "core/parallel.h"
#include "io/weights.h"
#include "models/gguf_config.h"
#include "models/gguf_names.h"
#include "models/vocabulary.h"
#include "nn/quantized.h"

namespace lode {
namespace {

struct Job {
  Parameter parameter;  // the part that the file holds
  const GgufTensor* tensor;
  GgufPlace place;
};

// Rows of the file, whole heads of them, in Hugging Face's order; any format, as rows are whole.
void order_rows(const Context& context, std::span<const std::byte> from, std::int64_t rows,
                std::int64_t head_dim, std::byte* out) {
  const std::size_t bytes = from.size() / static_cast<std::size_t>(rows);
  parallel_for(context.kernel.threads, rows, head_dim, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t to = r / head_dim * head_dim + row_within_head(r % head_dim, head_dim);
      std::memcpy(out + static_cast<std::size_t>(to) * bytes,
                  from.data() + static_cast<std::size_t>(r) * bytes, bytes);
    }
  });
}

// A panel of rows at a time, each given back when it is read, so that little of the file is in memory.
void load_matrix(Context& context, const GgufFile& file, const Job& job) {
  const std::int64_t rows = job.parameter.rows;
  const std::int64_t unit = job.place.heads == 0 ? 1 : rows / job.place.heads;
  const QuantFormat format = *job.tensor->format();
  const std::int64_t bytes = row_bytes(format, job.parameter.cols);
  const std::int64_t panel = std::max<std::int64_t>(kLoadedAtOnce / (bytes * unit), 1) * unit;
  std::shared_ptr<Storage> ordered;
  if (job.place.heads > 0)
    ordered = context.memory.allocate(static_cast<std::size_t>(std::min(panel, rows) * bytes),
                                      MemoryTag::workspace);
  for (std::int64_t first = 0; first < rows; first += panel) {
    const std::int64_t count = std::min(panel, rows - first);
    const auto part = job.tensor->bytes.subspan(static_cast<std::size_t>(first * bytes),
                                                static_cast<std::size_t>(count * bytes));
    if (ordered) {
      order_rows(context, part, count, unit, ordered->data());
      write_blocks(context, job.parameter, format, {ordered->data(), part.size()}, first);
    } else {
      write_blocks(context, job.parameter, format, part, first);
    }
    file.give_back(part);
  }
}

void load_vector(Context& context, const Job& job) {
  const std::int64_t n = job.parameter.cols;
  std::vector<float> values(static_cast<std::size_t>(n));
  const View view{values.data(), DType::f32, 1, n, n};
  dequantize_rows(context.kernel, *job.tensor->format(), job.tensor->bytes.data(), 0, view);
  if (job.place.heads > 0) {
    const std::vector<float> there = values;
    const std::int64_t head_dim = n / job.place.heads;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t to = i / head_dim * head_dim + row_within_head(i % head_dim, head_dim);
      values[static_cast<std::size_t>(to)] = there[static_cast<std::size_t>(i)];
    }
  }
  for (float& value : values) value -= job.place.offset;
  job.parameter.write(context, view);
}

void load(Context& context, const GgufFile& file, const Job& job) {
  if (job.parameter.vector) {
    load_vector(context, job);
  } else {
    load_matrix(context, file, job);
  }
}

std::string problem_of(const Parameter& parameter, const GgufTensor* tensor, const GgufPlace& place) {
  const Shape shape = parameter.vector ? Shape{parameter.cols} : Shape{parameter.rows, parameter.cols};
  if (tensor == nullptr) return format("\"{}\" {} is missing", place.name, shape_text(shape));
  if (tensor->shape != shape)
    return format("\"{}\": expected shape {}, found {}", place.name, shape_text(shape),
                  shape_text(tensor->shape));
  if (!tensor->format())
    return format("\"{}\": {} is not supported; convert the model to Q8_0 or F16", place.name,
                  tensor->type_name());
  return "";
}

// Tensors that need no place: what the config has said already, and the head of a tied model.
bool may_ignore(std::string_view name, bool tied_head) {
  return name == "rope_freqs.weight" || (tied_head && name == "output.weight");
}

// The readable tensors; what is wrong with the others is added to `problems`.
std::vector<Job> find_jobs(const GgufFile& file, const ModelConfig& config, const Decoder& decoder,
                           std::vector<std::string>& problems) {
  const auto places = gguf_places(config);
  std::vector<Job> jobs;
  std::set<std::string_view> wanted;
  for (const Parameter& parameter : decoder.parameters().all()) {
    if (parameter.role != ParameterRole::base) continue;
    const auto place = places.find(parameter.name);
    LODE_ASSERT(place != places.end());
    const GgufTensor* tensor = file.find(place->second.name);
    wanted.insert(place->second.name);
    const Parameter stored = stored_part(config, parameter);
    const std::string problem = problem_of(stored, tensor, place->second);
    if (problem.empty()) {
      jobs.push_back({stored, tensor, place->second});
    } else {
      problems.push_back(problem);
    }
  }
  for (const GgufTensor& tensor : file.tensors()) {
    if (!wanted.contains(tensor.name) && !may_ignore(tensor.name, config.spec.tied_head))
      problems.push_back(format("\"{}\" {} is not expected", tensor.name, shape_text(tensor.shape)));
  }
  return jobs;
}

void refuse_problems(const GgufFile& file, const std::vector<std::string>& problems) {
  if (problems.empty()) return;
  constexpr std::size_t kMostShown = 50;
  std::string list;
  for (std::size_t i = 0; i < std::min(problems.size(), kMostShown); ++i) list += "\n  " + problems[i];
  if (problems.size() > kMostShown) list += format("\n  and {} more", problems.size() - kMostShown);
  fail(ErrorKind::data, "{}: the weights do not fit the model, nothing was loaded:{}", file.path(), list);
}

constexpr std::string_view kLoraA = ".lora_a", kLoraB = ".lora_b";

// "blk.0.attn_q.weight.lora_a" is of "blk.0.attn_q.weight"; "" for another tensor.
std::string_view adapted_tensor(std::string_view name) {
  if (!name.ends_with(kLoraA) && !name.ends_with(kLoraB)) return "";
  return name.substr(0, name.size() - kLoraA.size());
}

}  // namespace

std::vector<std::string> find_gguf_problems(const GgufFile& file, const ModelConfig& config,
                                            const Decoder& decoder) {
  std::vector<std::string> problems;
  find_jobs(file, config, decoder, problems);
  return problems;
}

void load_gguf_weights(const GgufFile& file, const ModelConfig& config, Decoder& decoder, Context& context) {
  std::vector<std::string> problems;
  const std::vector<Job> jobs = find_jobs(file, config, decoder, problems);
  refuse_problems(file, problems);
  for (const Job& job : jobs) load(context, file, job);
  fill_new_rows(context, config, decoder);
  decoder.parameters().reset_copies(context);
}

void keep_gguf_formats(const GgufFile& file, const ModelConfig& config, WeightPolicy& policy) {
  std::map<std::string, QuantFormat> formats;
  for (const auto& [name, place] : gguf_places(config)) {
    const GgufTensor* tensor = file.find(place.name);
    const bool grown =
        config.stored_rows > 0 && (name == config.names.embedding || name == config.names.head);
    if (grown || tensor == nullptr || tensor->shape.size() != 2) continue;
    if (const auto format = tensor->format(); format && *format > QuantFormat::bf16) formats[name] = *format;
  }
  policy.format = [formats = std::move(formats)](const std::string& name,
                                                 ModuleKind) -> std::optional<QuantFormat> {
    const auto found = formats.find(name);
    return found == formats.end() ? std::nullopt : std::optional(found->second);
  };
}

AdapterSpec read_gguf_adapter_spec(const GgufFile& file, const ModelConfig& config) {
  const auto require = [&file](std::string_view key, std::string_view wanted) {
    if (const auto found = file.text(key); found != wanted) {
      fail(ErrorKind::data, "{}: \"{}\" is \"{}\", expected \"{}\"", file.path(), key,
           found.value_or("(absent)"), wanted);
    }
  };
  require("general.type", "adapter");
  require("adapter.type", "lora");
  require("general.architecture", gguf_architecture(config));
  const auto alpha = file.number("adapter.lora.alpha");
  if (!alpha) fail(ErrorKind::data, "{}: \"adapter.lora.alpha\" is missing", file.path());
  std::map<std::string_view, std::string_view> modules;  // by GGUF's name
  const auto places = gguf_places(config);
  for (const auto& [name, place] : places) {
    constexpr std::string_view kWeight = ".weight";
    if (name.ends_with(kWeight))
      modules[place.name] = std::string_view(name).substr(0, name.size() - kWeight.size());
  }
  AdapterSpec spec;
  spec.from_file = true;
  spec.alpha = *alpha;
  spec.targets.clear();
  std::vector<std::string> problems;
  for (const GgufTensor& tensor : file.tensors()) {
    const auto module = modules.find(adapted_tensor(tensor.name));
    if (module == modules.end() || tensor.shape.size() != 2) {
      problems.push_back(format("\"{}\" {} is not expected", tensor.name, shape_text(tensor.shape)));
    } else if (tensor.name.ends_with(kLoraA)) {
      spec.targets.emplace_back(module->second);
      spec.ranks[spec.targets.back()] = tensor.shape[0];
    }
  }
  refuse_problems(file, problems);
  if (spec.targets.empty()) fail(ErrorKind::data, "{}: holds no tensor of an adapter", file.path());
  spec.rank = spec.ranks.begin()->second;
  return spec;
}

void load_gguf_adapter(const GgufFile& file, const ModelConfig& config, Decoder& decoder, Context& context) {
  const auto places = gguf_places(config);
  const std::vector<Parameter>& all = decoder.parameters().all();
  std::vector<std::string> problems;
  std::vector<Job> jobs;
  const auto add = [&](const Parameter& parameter, const GgufPlace& place) {
    const GgufTensor* tensor = file.find(place.name);
    const std::string problem = problem_of(parameter, tensor, place);
    problem.empty() ? jobs.push_back({parameter, tensor, place}) : problems.push_back(problem);
  };
  for (const LoraPair& pair : decoder.parameters().pairs()) {
    const GgufPlace& place = places.at(all[pair.base].name);
    add(all[pair.a], {.name = place.name + std::string(kLoraA)});
    add(all[pair.b], {.name = place.name + std::string(kLoraB), .heads = place.heads});
  }
  refuse_problems(file, problems);
  for (const Job& job : jobs) load(context, file, job);
}

}  // namespace lode
