// A model ready to use: its description, tokenizer and decoder, from a folder with weights or from scratch.
#pragma once

#include <memory>
#include <optional>

#include "models/family.h"
#include "models/saved_config.h"
#include "text/tokenizer.h"
#include "train/engine.h"
#include "train/recipe.h"

namespace lode {

// Reads config and tokenizer and checks that they fit each other; allocates nothing large. A path is a folder
// in Hugging Face's form, a config.json, or a GGUF file (or a folder with one). A tokenizer_path of "" means
// the model's own. Throws Error(data) on what does not fit.
struct ModelParts {
  ModelConfig config;
  Tokenizer tokenizer;
};
ModelParts read_model_parts(FileSystem& files, const std::string& model_path,
                            const std::string& tokenizer_path);

struct Model {
  ModelConfig config;
  Tokenizer tokenizer;
  std::unique_ptr<Decoder> decoder;
  std::string base, adapter;  // paths; adapter "": none
};

// Adds the decoder with its weights, in the precision that the engine computes with: for evaluation and
// generation. A `path` that is a PEFT adapter stands for it on the base that it names; `adapter` ("": none)
// puts one on `path`.
Model load_model(FileSystem& files, Engine& engine, const std::string& path, const std::string& adapter = {});

// The tokenizer with a recipe's add_tokens and add_special_tokens, which must fit the rows that the model has
// (many keep free ones): Error(usage) otherwise, as rows are not added.
Tokenizer with_added_tokens(const Recipe& recipe, const Tokenizer& tokenizer, std::int64_t rows);

// An adapter that a run of ours saved goes on with the tokenizer that it was trained with; throws Error(data)
// for another one. Adapters from elsewhere say nothing about theirs.
void require_adapter_tokenizer(FileSystem& files, const std::string& adapter, const Tokenizer& tokenizer);

// Which weights a recipe trains and how the others are kept.
WeightPolicy weight_policy(FileSystem& files, const Recipe& recipe, const std::string& model_path,
                           const ModelConfig& config, DType compute);

// Facts about what the config asks for and no kernel does.
void report_model_facts(Facts& facts, const DecoderSpec& spec, bool training);

}  // namespace lode
