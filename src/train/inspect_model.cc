#include "train/inspect_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "core/fail.h"
#include "io/weights.h"
#include "kernels/quantized.h"
#include "models/gguf_config.h"
#include "models/gguf_load.h"
#include "models/gguf_names.h"
#include "models/hub.h"
#include "models/peft.h"
#include "models/vocabulary.h"
#include "models/weights.h"
#include "text/gguf_tokenizer.h"
#include "train/engine.h"

namespace lode {
namespace {

constexpr std::int64_t kSequence = 2048;
constexpr std::size_t kTemplateLines = 6, kTemplateColumns = 100;

std::vector<TensorSummary> safetensors_of(FileSystem& files, const std::string& path) {
  const WeightSet weights(files, path);
  std::vector<TensorSummary> tensors;
  for (const auto& [name, entry] : weights.tensors())
    tensors.push_back(
        {std::string(name), entry.info->dtype, entry.info->shape, entry.info->end - entry.info->begin});
  return tensors;
}

std::vector<TensorSummary> gguf_tensors_of(const GgufFile& file) {
  std::vector<TensorSummary> tensors;
  for (const GgufTensor& tensor : file.tensors())
    tensors.push_back({std::string(tensor.name), tensor.type_name(), tensor.shape, tensor.bytes.size()});
  std::ranges::sort(tensors, {}, &TensorSummary::name);
  return tensors;
}

class Inspector {
 public:
  Inspector(FileSystem& files, ModelInspection& out) : files_(files), out_(out) {}

  void adapter() {
    attempt([&] { read_peft_spec(files_, out_.adapter); });
    attempt([&] {
      out_.adapter_tensors =
          safetensors_of(files_, join_path(out_.adapter, std::string(kAdapterWeightsFile)));
    });
  }

  void base() {
    attempt([&] { gguf_ = find_gguf(files_, out_.path); });
    attempt([&] { out_.config = read_model_config(files_, out_.path); });
    if (out_.config && !out_.adapter.empty()) {
      attempt([&] {
        const std::int64_t rows = read_peft_rows(files_, out_.adapter, out_.config->names);
        if (rows > out_.config->spec.vocab_size) grow_vocabulary(*out_.config, rows);
      });
    }
    attempt([&] { read_tokenizer(); });
    attempt([&] { read_tensors(); });
    if (out_.config) attempt([&] { read_sizes(); });
    if (out_.config && out_.tokenizer && out_.tokenizer->vocab_size() > out_.config->spec.vocab_size) {
      out_.problems.push_back(format("vocab_size is {}, but the tokenizer has ids up to {}",
                                     out_.config->spec.vocab_size, out_.tokenizer->vocab_size() - 1));
    }
  }

 private:
  template <class Action>
  void attempt(Action&& action) {
    try {
      action();
    } catch (const Error& error) {
      // Config, tokenizer and weights of one damaged file fail alike.
      if (std::ranges::find(out_.problems, error.what()) == out_.problems.end())
        out_.problems.emplace_back(error.what());
    }
  }

  void read_tokenizer() {
    if (!out_.adapter.empty() && files_.exists(join_path(out_.adapter, "tokenizer.json"))) {
      out_.tokenizer = Tokenizer::load(files_, out_.adapter);
    } else if (gguf_) {
      out_.tokenizer = tokenizer_from_gguf(GgufFile(files_, *gguf_));
    } else if (files_.exists(join_path(folder(), "tokenizer.json"))) {
      out_.tokenizer = Tokenizer::load(files_, folder());
    }
  }

  void read_tensors() {
    if (gguf_) {
      out_.kind = "GGUF";
      out_.tensors = gguf_tensors_of(GgufFile(files_, *gguf_));
      return;
    }
    const bool has_weights = files_.exists(join_path(folder(), "model.safetensors")) ||
                             files_.exists(join_path(folder(), "model.safetensors.index.json"));
    out_.kind = has_weights ? "safetensors" : "no weights";
    if (has_weights) {
      out_.tensors = safetensors_of(files_, folder());
    } else if (files_.is_directory(out_.path)) {
      WeightSet(files_, out_.path);  // says what is missing, pickled files by name
    }
  }

  void read_sizes() {
    Engine engine({.threads = 1, .bf16 = true});
    WeightPolicy policy(false);
    policy.frozen_dtype = DType::bf16;
    const Decoder decoder(engine.context(), out_.config->spec, out_.config->names, std::move(policy));
    const DecoderSpec& spec = out_.config->spec;
    out_.parameters = decoder.parameters().numel();
    out_.sequence = std::min(kSequence, std::max<std::int64_t>(spec.max_positions, 1));
    out_.training_flops = decoder.full_training_flops_per_token(out_.sequence);
    out_.kv_bytes = 2 * spec.layers * spec.kv_heads * spec.head_dim * 2;
    if (out_.tensors.empty()) return;
    for (std::string& problem : find_weight_problems(files_, out_.path, *out_.config, decoder))
      out_.problems.push_back(std::move(problem));
  }

  std::string folder() const {
    if (files_.is_directory(out_.path)) return out_.path;
    const auto slash = out_.path.rfind('/');
    return slash == std::string::npos ? "." : out_.path.substr(0, slash);
  }

  FileSystem& files_;
  ModelInspection& out_;
  std::optional<std::string> gguf_;
};

struct FormatTotal {
  std::int64_t tensors = 0;
  std::uint64_t bytes = 0;
};

std::map<std::string, FormatTotal> totals_of(const std::vector<TensorSummary>& tensors) {
  std::map<std::string, FormatTotal> totals;
  for (const TensorSummary& tensor : tensors) {
    FormatTotal& total = totals[tensor.format];
    ++total.tensors;
    total.bytes += tensor.bytes;
  }
  return totals;
}

Json tensors_json(const std::vector<TensorSummary>& tensors, bool all) {
  Json formats = Json::object(), list = Json::array();
  for (const auto& [name, total] : totals_of(tensors)) {
    formats[name] =
        Json::object({{"tensors", total.tensors}, {"bytes", static_cast<std::int64_t>(total.bytes)}});
  }
  Json json = Json::object({{"count", static_cast<std::int64_t>(tensors.size())}, {"formats", formats}});
  if (!all) return json;
  for (const TensorSummary& tensor : tensors) {
    list.push_back(Json::object({{"name", tensor.name},
                                 {"format", tensor.format},
                                 {"shape", Json::Array(tensor.shape.begin(), tensor.shape.end())},
                                 {"bytes", static_cast<std::int64_t>(tensor.bytes)}}));
  }
  json["list"] = std::move(list);
  return json;
}

void add_tensor_lines(std::vector<std::string>& lines, const std::vector<TensorSummary>& tensors, bool all) {
  std::uint64_t bytes = 0;
  for (const TensorSummary& tensor : tensors) bytes += tensor.bytes;
  lines.push_back(format("{} tensors, {}", tensors.size(), format_bytes(bytes)));
  for (const auto& [name, total] : totals_of(tensors))
    lines.push_back(format("  {:<8} {:>5} tensors {:>12}", name, total.tensors, format_bytes(total.bytes)));
  if (!all) return;
  for (const TensorSummary& tensor : tensors)
    lines.push_back(format("  {:<56} {:<6} {}", tensor.name, tensor.format, shape_text(tensor.shape)));
}

std::vector<std::int32_t> special_ids(const Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.has_token(id) && tokenizer.is_special(id)) ids.push_back(id);
  }
  return ids;
}

// The first lines of a template, long ones cut.
std::vector<std::string> template_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  while (begin < text.size() && lines.size() < kTemplateLines) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, std::min(end - begin, kTemplateColumns));
    if (line.size() < end - begin) line += " ...";
    lines.push_back(std::move(line));
    begin = end + 1;
  }
  if (begin < text.size()) lines.push_back("...");
  return lines;
}

void add_architecture_lines(std::vector<std::string>& lines, const DecoderSpec& spec) {
  lines.push_back(format("{}: {} layers, hidden {}, intermediate {}, {} heads of {}, {} key-value heads",
                         spec.model_type, spec.layers, spec.hidden, spec.intermediate, spec.heads,
                         spec.head_dim, spec.kv_heads));
  std::int64_t windowed = 0, window = 0;
  for (const LayerSpec& layer : spec.layer_specs) {
    windowed += layer.window > 0;
    window = std::max(window, layer.window);
  }
  lines.push_back(format("vocabulary {}, {} positions, head {}{}", spec.vocab_size, spec.max_positions,
                         spec.tied_head ? "tied to the embedding" : "of its own",
                         windowed == 0 ? "" : format(", window of {} in {} layers", window, windowed)));
}

void add_tokenizer_lines(std::vector<std::string>& lines, const Tokenizer& tokenizer) {
  const std::vector<std::int32_t> special = special_ids(tokenizer);
  lines.push_back(format("tokenizer: {} ids, {} merges, {} special tokens, fingerprint {}",
                         tokenizer.vocab_size(), tokenizer.num_merges(), special.size(),
                         tokenizer.fingerprint()));
  constexpr std::size_t kMostShown = 12;
  std::string names;
  for (std::size_t i = 0; i < std::min(special.size(), kMostShown); ++i)
    names += format("{}{} ({})", i == 0 ? "" : ", ", tokenizer.token(special[i]), special[i]);
  if (special.size() > kMostShown) names += format(" and {} more", special.size() - kMostShown);
  if (!names.empty()) lines.push_back("  special: " + names);
  std::string stops;
  for (const std::int32_t id : tokenizer.stop_ids())
    stops += format("{}{} ({})", stops.empty() ? "" : ", ",
                    tokenizer.has_token(id) ? tokenizer.token(id) : "?", id);
  lines.push_back("  generation ends at: " + (stops.empty() ? "none" : stops));
  const auto chat = tokenizer.chat_template();
  if (!chat) {
    lines.push_back("chat template: none; a recipe names one with template");
    return;
  }
  lines.push_back(format(
      "chat template: the model's own, {} bytes{}", chat->size(),
      tokenizer.chat_templates().size() > 1 ? format(", one of {}", tokenizer.chat_templates().size()) : ""));
  for (const std::string& line : template_lines(*chat)) lines.push_back("  | " + line);
}

Json tokenizer_json(const Tokenizer& tokenizer) {
  Json special = Json::array(), stops = Json::array();
  for (const std::int32_t id : special_ids(tokenizer))
    special.push_back(Json::object({{"id", id}, {"text", tokenizer.token(id)}}));
  for (const std::int32_t id : tokenizer.stop_ids()) stops.push_back(id);
  const auto chat = tokenizer.chat_template();
  return Json::object({{"vocabulary", tokenizer.vocab_size()},
                       {"merges", tokenizer.num_merges()},
                       {"fingerprint", tokenizer.fingerprint()},
                       {"special_tokens", std::move(special)},
                       {"stop_ids", std::move(stops)},
                       {"chat_template", chat ? Json(*chat) : Json()}});
}

Json architecture_json(const DecoderSpec& spec) {
  return Json::object({{"model_type", spec.model_type},
                       {"layers", spec.layers},
                       {"hidden", spec.hidden},
                       {"intermediate", spec.intermediate},
                       {"heads", spec.heads},
                       {"kv_heads", spec.kv_heads},
                       {"head_dim", spec.head_dim},
                       {"vocabulary", spec.vocab_size},
                       {"positions", spec.max_positions},
                       {"tied_head", spec.tied_head}});
}

}  // namespace

Json ModelInspection::to_json(bool all_tensors) const {
  Json json = Json::object({{"path", path}, {"kind", kind}});
  if (!adapter.empty()) {
    json["adapter"] = adapter;
    json["adapter_tensors"] = tensors_json(adapter_tensors, all_tensors);
  }
  json["architecture"] = config ? architecture_json(config->spec) : Json();
  json["parameters"] = parameters;
  json["training_flops_per_token"] = training_flops;
  json["flops_sequence"] = sequence;
  json["kv_bytes_per_token"] = kv_bytes;
  json["tensors"] = tensors_json(tensors, all_tensors);
  json["tokenizer"] = tokenizer ? tokenizer_json(*tokenizer) : Json();
  json["problems"] = Json::Array(problems.begin(), problems.end());
  return json;
}

std::vector<std::string> ModelInspection::lines(bool all_tensors) const {
  std::vector<std::string> lines;
  if (!adapter.empty()) {
    lines.push_back(format("{} (PEFT adapter)", adapter));
    add_tensor_lines(lines, adapter_tensors, all_tensors);
    if (path.empty()) lines.push_back("names no base model");
  }
  if (!path.empty()) lines.push_back(format("{} ({})", path, kind));
  if (config) add_architecture_lines(lines, config->spec);
  if (parameters > 0) {
    lines.push_back(format("{} parameters ({}); {:.3g} FLOPs a token forward, {:.3g} in training ({} tokens)",
                           short_parameter_count(parameters), parameters, training_flops / 3, training_flops,
                           sequence));
    lines.push_back(format("{} bytes of keys and values a token (bf16)", kv_bytes));
  }
  if (!tensors.empty()) add_tensor_lines(lines, tensors, all_tensors);
  if (tokenizer) {
    add_tokenizer_lines(lines, *tokenizer);
  } else if (!path.empty()) {
    lines.push_back("tokenizer: none that can be read");
  }
  lines.push_back(problems.empty() ? "no problems" : format("{} problems:", problems.size()));
  for (const std::string& problem : problems) lines.push_back("  " + problem);
  return lines;
}

ModelInspection inspect_model(FileSystem& files, const std::string& path) {
  ModelInspection out;
  out.path = resolve_model_path(files, path);
  if (!files.exists(out.path)) fail(ErrorKind::data, "{}: there is no such model", out.path);
  Inspector inspector(files, out);
  if (files.exists(join_path(out.path, std::string(kAdapterConfigFile)))) {
    out.adapter = out.path;
    inspector.adapter();
    out.path.clear();
    try {
      out.path = resolve_model_path(files, read_peft_base(files, out.adapter));
    } catch (const Error& error) {
      out.problems.emplace_back(error.what());
    }
    if (!out.path.empty() && !files.exists(out.path)) {
      out.problems.push_back(format("{}: the adapter's base is not there", out.path));
      out.path.clear();
    }
    if (out.path.empty()) return out;
  }
  inspector.base();
  return out;
}

namespace {

// A matrix in a mapped file; the owners keep it mapped.
struct FileRows {
  std::shared_ptr<const void> owner;
  QuantFormat format = QuantFormat::f32;
  const std::byte* data = nullptr;
  std::int64_t rows = 0, cols = 0;

  std::string_view row(std::int64_t r) const {
    const std::int64_t bytes = row_bytes(format, cols);
    return {reinterpret_cast<const char*>(data + r * bytes), static_cast<std::size_t>(bytes)};
  }
};

std::optional<FileRows> gguf_embedding(FileSystem& files, const std::string& path,
                                       const ModelConfig& config) {
  const auto file = std::make_shared<GgufFile>(files, path);
  const auto places = gguf_places(config);
  const auto place = places.find(config.names.embedding);
  const GgufTensor* tensor = place == places.end() ? nullptr : file->find(place->second.name);
  if (tensor == nullptr || tensor->shape.size() != 2 || !tensor->format()) return std::nullopt;
  return FileRows{file, *tensor->format(), tensor->bytes.data(), tensor->shape[0], tensor->shape[1]};
}

std::optional<FileRows> safetensors_embedding(FileSystem& files, const std::string& path,
                                              const ModelConfig& config) {
  const auto weights = std::make_shared<WeightSet>(files, path);
  std::string_view name = config.names.embedding;
  auto found = weights->tensors().find(name);
  if (found == weights->tensors().end() && name.starts_with("transformer."))
    found = weights->tensors().find(name.substr(std::string_view("transformer.").size()));
  if (found == weights->tensors().end() || found->second.info->shape.size() != 2) return std::nullopt;
  const TensorInfo& info = *found->second.info;
  const auto format = quant_format_from_name(info.dtype);
  if (!format || *format > QuantFormat::bf16) return std::nullopt;
  return FileRows{weights, *format, found->second.file->bytes(info).data(), info.shape[0], info.shape[1]};
}

// The mean of all rows, in double.
std::vector<double> mean_of(KernelContext& context, const FileRows& rows) {
  constexpr std::int64_t kChunk = 256;
  std::vector<double> mean(static_cast<std::size_t>(rows.cols));
  std::vector<float> values(static_cast<std::size_t>(kChunk * rows.cols));
  for (std::int64_t first = 0; first < rows.rows; first += kChunk) {
    const std::int64_t count = std::min(kChunk, rows.rows - first);
    dequantize_rows(context, rows.format, rows.data, first,
                    {values.data(), DType::f32, count, rows.cols, rows.cols});
    for (std::int64_t r = 0; r < count; ++r) {
      const float* row = values.data() + r * rows.cols;
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += static_cast<double>(row[i]);
    }
  }
  for (double& value : mean) value /= static_cast<double>(rows.rows);
  return mean;
}

// Zero, or the mean but for the rounding of the file's format.
bool is_unlearned(const std::vector<float>& row, const std::vector<double>& mean) {
  double norm = 0, distance = 0, mean_norm = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const auto value = static_cast<double>(row[i]);
    norm += value * value;
    mean_norm += mean[i] * mean[i];
    distance += (value - mean[i]) * (value - mean[i]);
  }
  return norm == 0 || distance <= 1e-4 * mean_norm;
}

}  // namespace

std::vector<std::int32_t> find_untrained_rows(FileSystem& files, const std::string& path,
                                              const ModelConfig& config,
                                              const std::vector<std::int32_t>& ids) {
  const std::optional<std::string> gguf = find_gguf(files, path);
  const auto rows = gguf ? gguf_embedding(files, *gguf, config) : safetensors_embedding(files, path, config);
  if (!rows || rows->rows == 0 || ids.empty()) return {};
  std::unordered_map<std::string_view, int> counts;
  counts.reserve(static_cast<std::size_t>(rows->rows));
  for (std::int64_t r = 0; r < rows->rows; ++r) ++counts[rows->row(r)];
  Engine engine({.threads = 0});
  KernelContext& context = engine.context().kernel;
  const std::vector<double> mean = mean_of(context, *rows);
  std::vector<float> values(static_cast<std::size_t>(rows->cols));
  std::vector<std::int32_t> untrained;
  for (const std::int32_t id : ids) {
    if (id >= rows->rows && id < config.spec.vocab_size) untrained.push_back(id);  // a row that was added
    if (id < 0 || id >= rows->rows) continue;
    dequantize_rows(context, rows->format, rows->data, id,
                    {values.data(), DType::f32, 1, rows->cols, rows->cols});
    if (counts.at(rows->row(id)) > 1 || is_unlearned(values, mean)) untrained.push_back(id);
  }
  return untrained;
}

}  // namespace lode
