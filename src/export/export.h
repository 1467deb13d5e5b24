// A model, with its adapter merged or alone, in the files that other programs load. Every export is written
// under a temporary name, loaded again and compared with the model; only then it gets its name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "kernels/quantized.h"
#include "models/family.h"
#include "text/tokenizer.h"

namespace lode {

enum class ExportFormat {
  safetensors,  // a folder for Hugging Face transformers; the adapter merged
  peft,         // a folder for PEFT: the adapter alone
  gguf,         // a file for llama.cpp; the adapter merged
  gguf_lora,    // a file for llama.cpp: the adapter alone
};

struct ExportOptions {
  ExportFormat format = ExportFormat::safetensors;
  std::string out;             // a folder, or a file ending in .gguf
  std::optional<DType> dtype;  // safetensors; unset: as in the base's files, bf16 when these are quantised
  QuantFormat gguf = QuantFormat::f16;
  std::uint64_t shard_bytes = 5'000'000'000;
  std::vector<std::string> prompts;  // of the check; empty: default_probe_prompts()
  std::int64_t check_tokens = 16;    // greedy tokens after each
  bool modelfile = false;            // gguf: an Ollama Modelfile beside the file
};

// The model as it computes; its context should compute in f32. Paths are of what it was loaded from.
struct ExportSource {
  FileSystem& files;
  Context& context;
  const ModelConfig& config;
  Decoder& decoder;
  const Tokenizer& tokenizer;
  std::string base, adapter;
};

struct ExportReport {
  std::vector<std::string> files;  // published
  std::vector<std::string> notes;  // substitutions
  Json check;                      // also written beside the export
};

// Throws Error(usage) when `out` exists or the format does not fit the model, Error(data) when the check
// fails (nothing is left) or the disk is full.
ExportReport export_model(const ExportSource& source, const ExportOptions& options);

std::string_view name_of(ExportFormat format);  // "safetensors", "peft", "gguf", "gguf-lora"

}  // namespace lode
