#include "export/export.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/fail.h"
#include "export/check.h"
#include "export/modelfile.h"
#include "io/gguf.h"
#include "io/sharded_writer.h"
#include "models/gguf_export.h"
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

class Exporter {
 public:
  Exporter(const ExportSource& source, const ExportOptions& options) : source_(source), options_(options) {
    folder_ = options_.format == ExportFormat::safetensors || options_.format == ExportFormat::peft;
    const std::string parent = parent_path(options_.out);
    const std::string name = options_.out.substr(options_.out.rfind('/') + 1);
    temporary_ = join_path(parent, ".tmp-export-" + name);
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
      try {
        source_.files.remove(temporary_);
      } catch (const Error&) {  // the first failure is the one to tell
      }
      throw;
    }
    return std::move(report_);
  }

 private:
  void refuse_what_cannot_be() const {
    const std::string_view name = name_of(options_.format);
    if (options_.out.empty() || options_.out.ends_with('/'))
      fail(ErrorKind::usage, "export: --out names no file or folder");
    if (source_.files.exists(options_.out)) {
      fail(ErrorKind::usage, "{}: exists already; remove it or give another name", options_.out);
    }
    if (!folder_ && !options_.out.ends_with(".gguf")) {
      fail(ErrorKind::usage, "{}: a file of format {} ends in .gguf", options_.out, name);
    }
    const bool adapter_alone =
        options_.format == ExportFormat::peft || options_.format == ExportFormat::gguf_lora;
    if (adapter_alone && source_.adapter.empty()) {
      fail(ErrorKind::usage, "format {} exports an adapter, and the model has none: give --adapter", name);
    }
    if (options_.format == ExportFormat::gguf && unties_head(source_.decoder)) {
      fail(ErrorKind::data,
           "format gguf: the adapter changes a head that shares the embedding's tensor, which is not "
           "supported: export "
           "safetensors");
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

  void write_gguf_file() {
    const ParameterList& parameters = source_.decoder.parameters();
    const GgufModel plan =
        plan_gguf(source_.config, source_.decoder, options_.gguf, source_.config.spec.model_type);
    report_.notes = plan.substitutions;
    GgufFields tokenizer;
    GgufTokenizerData data = gguf_tokenizer_data(source_.tokenizer);
    pad_gguf_tokens(data, source_.config.spec.vocab_size);
    add_gguf_tokenizer(data, tokenizer);
    write_gguf(source_.context, source_.files, temporary_, source_.config, plan, tokenizer,
               [&](const Parameter& parameter, std::int64_t first, View out) {
                 merged_rows(source_.context, parameters, parameters.index_of(parameter.name), false, first,
                             out);
               });
  }

  // The written files as a model, through the ordinary readers.
  std::vector<Probe> probe_written(const std::vector<std::string>& prompts) {
    FileSystem& files = source_.files;
    const bool alone = options_.format == ExportFormat::peft;
    const std::string path = alone ? source_.base : temporary_;
    ModelConfig config = read_model_config(files, path);
    if (alone && source_.config.stored_rows > 0) grow_vocabulary(config, source_.config.spec.vocab_size);
    const Tokenizer tokenizer = options_.format == ExportFormat::gguf
                                    ? tokenizer_from_gguf(GgufFile(files, temporary_))
                                    : Tokenizer::load(files, temporary_);
    WeightPolicy policy(false);
    policy.frozen_dtype = source_.context.dtype;
    if (alone) policy.adapter = read_peft_spec(files, temporary_);
    Decoder decoder(source_.context, config.spec, config.names, std::move(policy));
    load_model_weights(files, path, config, decoder, source_.context);
    if (alone) load_peft(files, temporary_, source_.context, decoder);
    return run_probes(source_.context, decoder, tokenizer, prompts, options_.check_tokens);
  }

  // An adapter for llama.cpp has no reader here: its tensors are compared, each B up to the order of its
  // rows.
  void check_gguf_adapter() {
    const GgufFile file(source_.files, temporary_);
    const ParameterList& parameters = source_.decoder.parameters();
    const double alpha = file.number("adapter.lora.alpha").value_or(-1);
    std::multiset<double> written, held;
    const auto size_of_values = [](ConstView values, float factor) {
      double sum = 0;
      for (std::int64_t r = 0; r < values.rows; ++r) {
        for (std::int64_t c = 0; c < values.cols; ++c)
          sum += std::abs(static_cast<double>(values.row<float>(r)[c] * factor));
      }
      return sum;
    };
    for (const GgufTensor& tensor : file.tensors()) {
      const MatrixSize size = matrix_size(tensor.shape);
      written.insert(size_of_values({tensor.bytes.data(), DType::f32, size.rows, size.cols, size.cols}, 1));
    }
    // Readers scale each B by alpha / its rank; pairs that differ from the first have the rest in their
    // values.
    const LoraPair& first = parameters.pairs().front();
    const double first_alpha = static_cast<double>(first.scale) * static_cast<double>(first.rank);
    for (const LoraPair& pair : parameters.pairs()) {
      const double scale = static_cast<double>(pair.scale) * static_cast<double>(pair.rank);
      held.insert(size_of_values(parameters.all()[pair.a].values(), 1));
      held.insert(size_of_values(parameters.all()[pair.b].values(), static_cast<float>(scale / first_alpha)));
    }
    bool equal =
        alpha == static_cast<double>(static_cast<float>(first_alpha)) && written.size() == held.size();
    for (auto a = written.begin(), b = held.begin(); equal && a != written.end(); ++a, ++b) {
      equal = std::abs(*a - *b) <= 1e-9 * std::max(1.0, *b);
    }
    report_.check =
        Json::object({{"tensors", static_cast<std::int64_t>(file.tensors().size())}, {"equal", equal}});
    if (!equal)
      fail(ErrorKind::data, "{}: the check failed: the file's tensors are not the adapter's; nothing is left",
           options_.out);
  }

  void check(const std::vector<Probe>& expected, const std::vector<std::string>& prompts) {
    if (options_.format == ExportFormat::gguf_lora) return check_gguf_adapter();
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

  void publish() {
    FileSystem& files = source_.files;
    const std::string report = report_.check.dump(2) + "\n";
    if (folder_) write_file_atomically(files, join_path(temporary_, "export_check.json"), report);
    files.rename(temporary_, options_.out);
    files.sync_directory(parent_path(options_.out));
    report_.files.push_back(options_.out);
    if (!folder_) {
      report_.files.push_back(options_.out + ".check.json");
      write_file_atomically(files, report_.files.back(), report);
    }
    if (options_.modelfile && options_.format == ExportFormat::gguf) {
      const std::string name = options_.out.substr(options_.out.rfind('/') + 1);
      report_.files.push_back(join_path(parent_path(options_.out), "Modelfile"));
      write_file_atomically(files, report_.files.back(), ollama_modelfile(name, source_.tokenizer));
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
