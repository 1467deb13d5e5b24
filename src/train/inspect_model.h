// What a model on disk is: architecture, sizes, tensors, tokenizer, chat template, and what is wrong with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "models/family.h"
#include "text/tokenizer.h"

namespace lode {

struct TensorSummary {
  std::string name, format;  // "BF16", "Q4_K"
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;
};

struct ModelInspection {
  std::string path;                   // of the base when an adapter was given
  std::string kind;                   // "safetensors", "GGUF", "no weights"
  std::string adapter;                // a PEFT folder; "": none
  std::optional<ModelConfig> config;  // nothing when it could not be read; so is the tokenizer
  std::optional<Tokenizer> tokenizer;
  std::int64_t parameters = 0;  // of the base, a tied head counted once
  std::int64_t sequence = 0;    // length of the sequences that the FLOPs are for
  double training_flops = 0;    // per token; forward and backward. A third of it is the forward
  std::int64_t kv_bytes = 0;    // per token, all layers, in bf16
  std::vector<TensorSummary> tensors, adapter_tensors;  // in order of their names
  std::vector<std::string> problems;

  Json to_json(bool all_tensors) const;
  std::vector<std::string> lines(bool all_tensors) const;  // for people
};

// path: a folder in Hugging Face's form, a config.json, a GGUF file or a PEFT folder. Reads no weights. Parts
// that cannot be read are problems; throws Error(data) when nothing is there.
ModelInspection inspect_model(FileSystem& files, const std::string& path);

// Which of `ids` have an embedding row that training never changed: all zero, the same bytes as another
// token's row, or the mean of all rows. Reads the embedding alone; nothing for a model without weights.
std::vector<std::int32_t> find_untrained_rows(FileSystem& files, const std::string& path,
                                              const ModelConfig& config,
                                              const std::vector<std::int32_t>& ids);

}  // namespace lode
