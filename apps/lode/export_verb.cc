#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <memory>

#include "core/fail.h"
#include "core/file.h"
#include "export/export.h"
#include "train/model_setup.h"
#include "verbs.h"

namespace lode {
namespace {

struct ExportArguments {
  std::string model, adapter, format = "safetensors", type, dtype;
  double shard_gb = 5;
  int threads = 0;
  bool json = false;
  ExportOptions options;
};

void run(ExportArguments& arguments) {
  ExportOptions& options = arguments.options;
  for (const ExportFormat format :
       {ExportFormat::safetensors, ExportFormat::peft, ExportFormat::gguf, ExportFormat::gguf_lora}) {
    if (name_of(format) == arguments.format) options.format = format;
  }
  const bool gguf = options.format == ExportFormat::gguf;
  const auto refuse = [&arguments](std::string_view option, std::string_view of) {
    fail(ErrorKind::usage, "{} belongs to --format {}; this is {}", option, of, arguments.format);
  };
  if (!arguments.type.empty() && !gguf) refuse("--type", "gguf");
  if (options.modelfile && !gguf) refuse("--modelfile", "gguf");
  if (!arguments.dtype.empty() && options.format != ExportFormat::safetensors)
    refuse("--dtype", "safetensors");
  const auto type = quant_format_from_name(arguments.type.empty() ? "f16" : arguments.type);
  if (!type || !can_quantize(*type) || *type == QuantFormat::nf4 || *type == QuantFormat::int8) {
    fail(ErrorKind::usage, "--type: expected f32, f16, bf16, q8_0, q4_0 or q4_k, found {}", arguments.type);
  }
  options.gguf = *type;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    if (name_of(dtype) == arguments.dtype) options.dtype = dtype;
  }
  options.shard_bytes = static_cast<std::uint64_t>(std::llround(arguments.shard_gb * 1e9));
  Engine engine({.threads = arguments.threads, .bf16 = false});
  Model model = load_model(real_files(), engine, arguments.model, arguments.adapter);
  const ExportReport report = export_model({real_files(), engine.context(), model.config, *model.decoder,
                                            model.tokenizer, model.base, model.adapter},
                                           options);
  if (arguments.json) {
    Json files = Json::array(), notes = Json::array();
    for (const std::string& file : report.files) files.push_back(file);
    for (const std::string& note : report.notes) notes.push_back(note);
    std::printf("%s\n",
                Json::object({{"files", files}, {"notes", notes}, {"check", report.check}}).dump(2).c_str());
    return;
  }
  for (const std::string& note : report.notes) std::fprintf(stderr, "%s\n", note.c_str());
  std::fprintf(stderr, "checked: %s\n", report.check.dump().c_str());
  for (const std::string& file : report.files) std::printf("%s\n", file.c_str());
}

}  // namespace

void add_export_verb(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("export", "Write a model, or an adapter, in the files of other programs");
  const auto arguments = std::make_shared<ExportArguments>();
  verb->add_option("model", arguments->model,
                   "a model folder, a GGUF file, a checkpoint or an adapter's folder")
      ->required();
  verb->add_option("--adapter", arguments->adapter,
                   "an adapter on the model: a folder of PEFT's, or a GGUF file");
  verb->add_option(
          "--format", arguments->format,
          "safetensors: a folder, the adapter merged; peft: the adapter; gguf: a file, the adapter merged; "
          "gguf-lora: the adapter as a file")
      ->check(CLI::IsMember({"safetensors", "peft", "gguf", "gguf-lora"}))
      ->capture_default_str();
  verb->add_option("--out,-o", arguments->options.out, "the folder or file to make")->required();
  verb->add_option("--type", arguments->type,
                   "of a GGUF file's matrices: f32, f16 (without it), bf16, q8_0, q4_0 or q4_k");
  verb->add_option("--dtype", arguments->dtype, "of safetensors; without it that of the base's files")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  verb->add_option("--shard-gb", arguments->shard_gb, "largest safetensors file, in GB (10^9 bytes)")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  verb->add_option("--prompt", arguments->options.prompts, "of the check; may be given several times");
  verb->add_option("--check-tokens", arguments->options.check_tokens,
                   "greedy tokens compared after each prompt")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  verb->add_flag("--modelfile", arguments->options.modelfile, "with gguf: an Ollama Modelfile beside it");
  verb->add_option("--threads", arguments->threads, "threads; 0: every core")->check(CLI::Range(0, 4096));
  verb->add_flag("--json", arguments->json, "print JSON");
  verb->callback([arguments] { run(*arguments); });
}

}  // namespace lode
