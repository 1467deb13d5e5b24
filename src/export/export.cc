#include "export/export.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "export/check.h"
#include "export/modelfile.h"
#include "io/gguf.h"
#include "io/sharded_writer.h"
#include "models/gguf_export.h"
#include "models/gguf_load.h"
#include "models/peft.h"
#include "models/saved_config.h"
#include "models/vocabulary.h"
#include "models/weights.h"
#include "text/gguf_tokenizer.h"

namespace lode {
namespace {

struct Limits {
  double logit_error, divergence;
  bool greedy;  // must be equal
};

// What rounding the weights may cost.
Limits limits_of(const ExportOptions& options, DType dtype) {
  constexpr Limits kExact{1e-4, 1e-5, true}, kHalf{0.1, 0.02, false};
  switch (options.format) {
    case ExportFormat::peft:
    case ExportFormat::gguf_lora:
      return kExact;
    case ExportFormat::safetensors:
      return dtype == DType::f32 ? kExact : kHalf;
    case ExportFormat::gguf:
      break;
  }
  if (options.gguf == QuantFormat::f32) return kExact;
  if (options.gguf == QuantFormat::f16 || options.gguf == QuantFormat::bf16) return kHalf;
  return options.gguf == QuantFormat::q8_0 ? Limits{1, 0.1, false} : Limits{1, 2, false};
}

// The dtype of most values of the base's files.
DType stored_dtype(FileSystem& files, const std::string& base) {
  if (!files.is_directory(base) && !base.ends_with(".safetensors")) return DType::bf16;
  try {
    std::int64_t values[4] = {};
    const WeightSet weights(files, base);
    for (const auto& [name, entry] : weights.tensors()) {
      const auto dtype = dtype_from_safetensors(entry.info->dtype);
      if (!dtype || *dtype == DType::i32) continue;
      const MatrixSize size = matrix_size(entry.info->shape);
      values[static_cast<int>(*dtype)] += size.rows * size.cols;
    }
    return static_cast<DType>(std::ranges::max_element(values) - values);
  } catch (const Error&) {  // a folder with a GGUF file
    return DType::bf16;
  }
}

std::string base_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

class Exporter {
 public:
  Exporter(const ExportSource& source, const ExportOptions& options) : source_(source), options_(options) {
    folder_ = options_.format == ExportFormat::safetensors || options_.format == ExportFormat::peft;
    temporary_ = join_path(parent_path(options_.out), ".tmp-export-" + base_name(options_.out));
  }

  ExportReport run() {
    refuse_what_cannot_be();
    const auto& prompts = options_.prompts.empty() ? default_probe_prompts() : options_.prompts;
    const std::vector<Probe> expected =
        run_probes(source_.context, source_.decoder, source_.tokenizer, prompts, options_.check_tokens);
    if (expected.empty()) fail(ErrorKind::usage, "export: no prompt of the check fits the model's context");
    try {
      source_.files.make_directory(parent_path(options_.out));
      source_.files.remove(temporary_);
      write();
      check(expected, prompts);
      publish();
    } catch (...) {
      remove_silently(temporary_);
      for (const std::string& path : report_.files) remove_silently(path);
      throw;
    }
    return std::move(report_);
  }

 private:
  void refuse_what_cannot_be() const {
    const std::string_view name = name_of(options_.format);
    if (options_.out.empty() || options_.out.ends_with('/'))
      fail(ErrorKind::usage, "export: --out names no file or folder");
    for (const std::string& path : targets()) {
      if (source_.files.exists(path) && !belongs_to_export(path))
        fail(ErrorKind::usage, "{}: exists already; remove it or give another name", path);
    }
    if (!folder_ && !options_.out.ends_with(".gguf")) {
      fail(ErrorKind::usage, "{}: a file of format {} ends in .gguf", options_.out, name);
    }
    const bool adapter_alone =
        options_.format == ExportFormat::peft || options_.format == ExportFormat::gguf_lora;
    if (adapter_alone && source_.adapter.empty()) {
      fail(ErrorKind::usage, "format {} exports an adapter, and the model has none: give --adapter", name);
    }
  }

  void write() {
    switch (options_.format) {
      case ExportFormat::safetensors:
        return write_safetensors_folder();
      case ExportFormat::peft:
        source_.files.make_directory(temporary_);
        save_peft(source_.files, temporary_, source_.decoder.parameters(), source_.base);
        source_.tokenizer.save(source_.files, temporary_);
        return;
      case ExportFormat::gguf:
        return write_gguf_file();
      case ExportFormat::gguf_lora:
        write_gguf_adapter(source_.context, source_.files, temporary_, source_.config, source_.decoder,
                           source_.base);
        return;
    }
  }

  void write_safetensors_folder() {
    const ParameterList& parameters = source_.decoder.parameters();
    dtype_ = options_.dtype.value_or(stored_dtype(source_.files, source_.base));
    struct Place {
      std::size_t index;
      bool as_head;
    };
    std::vector<TensorSpec> specs;
    std::vector<Place> places;
    const std::vector<TensorSpec> all = file_tensors(parameters, dtype_);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (parameters.all()[i].role != ParameterRole::base) continue;
      specs.push_back(all[i]);
      places.push_back({i, false});
    }
    ModelConfig config = source_.config;
    if (unties_head(source_.decoder)) {
      config.json["tie_word_embeddings"] = false;
      const std::size_t embedding = parameters.index_of(config.names.embedding);
      TensorSpec head = all[embedding];
      head.name = config.names.head;
      specs.push_back(head);
      places.push_back({embedding, true});
    }
    require_space(SafetensorsWriter::file_size(specs));
    source_.files.make_directory(temporary_);
    Tensor buffer;
    write_sharded_safetensors(source_.files, temporary_, specs, options_.shard_bytes, [&](std::size_t i) {
      const Parameter& parameter = parameters.all()[places[i].index];
      buffer = Tensor(source_.context.memory, MemoryTag::program, DType::f32, parameter.rows, parameter.cols);
      merged_rows(source_.context, parameters, places[i].index, places[i].as_head, 0, buffer.view());
      return ConstView(buffer.view());
    });
    const auto text = [&](std::string_view name, const std::string& contents) {
      write_file_atomically(source_.files, join_path(temporary_, name), contents);
    };
    text("config.json", saved_config(config, source_.tokenizer, dtype_));
    text("generation_config.json", saved_generation_config(source_.tokenizer));
    source_.tokenizer.save(source_.files, temporary_, config.spec.max_positions);
  }

  // Before minutes of writing; adapters are small.
  void require_space(std::uint64_t bytes) const {
    const std::string folder = parent_path(options_.out);
    const std::uint64_t available = source_.files.free_space(folder);
    if (bytes <= available) return;
    fail(ErrorKind::data, "{}: the export needs {} ({} bytes), the disk has {} ({} bytes) left", folder,
         format_bytes(bytes), bytes, format_bytes(available), available);
  }

  void write_gguf_file() {
    const ParameterList& parameters = source_.decoder.parameters();
    const GgufModel plan =
        plan_gguf(source_.config, source_.decoder, options_.gguf, source_.config.spec.model_type);
    report_.notes = plan.substitutions;
    std::uint64_t bytes = 0;
    for (const GgufTensorSpec& spec : plan.specs) bytes += spec.bytes();
    require_space(bytes);
    GgufFields tokenizer;
    GgufTokenizerData data = gguf_tokenizer_data(source_.tokenizer);
    pad_gguf_tokens(data, source_.config.spec.vocab_size);
    add_gguf_tokenizer(data, tokenizer);
    write_gguf(source_.context, source_.files, temporary_, source_.config, plan, tokenizer,
               [&](const Parameter& parameter, bool as_head, std::int64_t first, View out) {
                 merged_rows(source_.context, parameters, parameters.index_of(parameter.name), as_head, first,
                             out);
               });
  }

  // The written files as a model, through the ordinary readers.
  std::vector<Probe> probe_written(const std::vector<std::string>& prompts) {
    FileSystem& files = source_.files;
    const bool peft = options_.format == ExportFormat::peft,
               lora = options_.format == ExportFormat::gguf_lora;
    const std::string path = peft || lora ? source_.base : temporary_;
    ModelConfig config = read_model_config(files, path);
    if (peft && source_.config.stored_rows > 0) grow_vocabulary(config, source_.config.spec.vocab_size);
    std::optional<GgufFile> gguf;
    if (!folder_) gguf.emplace(files, temporary_);
    const Tokenizer tokenizer = lora   ? source_.tokenizer
                                : gguf ? tokenizer_from_gguf(*gguf)
                                       : Tokenizer::load(files, temporary_);
    WeightPolicy policy(false);
    policy.frozen_dtype = source_.context.dtype;
    if (peft) policy.adapter = read_peft_spec(files, temporary_);
    if (lora) policy.adapter = read_gguf_adapter_spec(*gguf, config);
    Decoder decoder(source_.context, config.spec, config.names, std::move(policy));
    load_model_weights(files, path, config, decoder, source_.context);
    if (peft) load_peft(files, temporary_, source_.context, decoder);
    if (lora) load_gguf_adapter(*gguf, config, decoder, source_.context);
    return run_probes(source_.context, decoder, tokenizer, prompts, options_.check_tokens);
  }

  void check(const std::vector<Probe>& expected, const std::vector<std::string>& prompts) {
    const ProbeComparison found = compare_probes(expected, probe_written(prompts));
    const Limits limits = limits_of(options_, dtype_);
    report_.check = found.to_json();
    report_.check["allowed_logit_error"] = limits.logit_error;
    report_.check["allowed_divergence"] = limits.divergence;
    Json list = Json::array();
    for (const Probe& probe : expected) {
      list.push_back(
          Json::object({{"prompt", probe.prompt}, {"greedy", source_.tokenizer.decode(probe.greedy)}}));
    }
    report_.check["prompts"] = std::move(list);
    const bool good = found.same_tokens && found.max_logit_error <= limits.logit_error &&
                      found.max_divergence <= limits.divergence &&
                      (!limits.greedy || found.greedy_equal == found.greedy_tokens);
    if (!good) {
      fail(ErrorKind::data,
           "{}: the check failed: {}; at most {} of the largest logit and {} nats are allowed{}; nothing is "
           "left",
           options_.out, found.to_json().dump(), limits.logit_error, limits.divergence,
           limits.greedy ? ", and equal greedy tokens" : "");
    }
  }

  // The export's name comes last: who sees it sees all of it.
  void publish() {
    FileSystem& files = source_.files;
    const std::string report = report_.check.dump(2) + "\n";
    if (folder_) write_file_atomically(files, join_path(temporary_, "export_check.json"), report);
    const std::vector<std::string> paths = targets();
    for (std::size_t i = 1; i < paths.size(); ++i) {
      report_.files.push_back(paths[i]);
      const bool modelfile = i == 2;
      write_file_atomically(
          files, paths[i], modelfile ? ollama_modelfile(base_name(options_.out), source_.tokenizer) : report);
    }
    files.rename(temporary_, options_.out);
    report_.files.insert(report_.files.begin(), options_.out);
    files.sync_directory(parent_path(options_.out));
  }

  // What will be published: the export; beside a file its report, and a Modelfile.
  std::vector<std::string> targets() const {
    std::vector<std::string> paths{options_.out};
    if (!folder_) paths.push_back(options_.out + ".check.json");
    if (options_.modelfile && options_.format == ExportFormat::gguf)
      paths.push_back(join_path(parent_path(options_.out), "Modelfile"));
    return paths;
  }

  // What an earlier export of this name left beside a file that is gone.
  bool belongs_to_export(const std::string& path) const {
    if (path == options_.out) return false;
    return path.ends_with(".check.json") ||
           source_.files.read(path).starts_with(format("FROM ./{}\n", base_name(options_.out)));
  }

  void remove_silently(const std::string& path) {
    try {
      source_.files.remove(path);
    } catch (const Error&) {  // the first failure is the one to tell
    }
  }

  const ExportSource& source_;
  const ExportOptions& options_;
  bool folder_ = false;
  std::string temporary_;
  DType dtype_ = DType::f32;
  ExportReport report_;
};

}  // namespace

std::string_view name_of(ExportFormat format) {
  switch (format) {
    case ExportFormat::safetensors:
      return "safetensors";
    case ExportFormat::peft:
      return "peft";
    case ExportFormat::gguf:
      return "gguf";
    case ExportFormat::gguf_lora:
      return "gguf-lora";
  }
  return "";
}

ExportReport export_model(const ExportSource& source, const ExportOptions& options) {
  return Exporter(source, options).run();
}

}  // namespace lode
