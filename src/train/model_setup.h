// A model ready to use: its description, tokenizer and decoder, from a folder with weights or from scratch.
#pragma once

#include <memory>
#include <optional>

#include "models/family.h"
#include "text/tokenizer.h"
#include "train/engine.h"

namespace lode {

struct Model {
  ModelConfig config;
  Tokenizer tokenizer;
  std::unique_ptr<Decoder> decoder;
};

// Reads config and tokenizer and checks that they fit each other; allocates nothing large. A tokenizer_path
// of "" means the model's folder. Throws Error(data) on what does not fit.
struct ModelParts {
  ModelConfig config;
  Tokenizer tokenizer;
};
ModelParts read_model_parts(FileSystem& files, const std::string& model_path,
                            const std::string& tokenizer_path);

// Adds the decoder with the folder's weights: for evaluation and generation.
Model load_model(FileSystem& files, Engine& engine, const std::string& path);

// Facts about what the config asks for and no kernel does.
void report_model_facts(Facts& facts, const DecoderSpec& spec, bool training);

// config.json and generation_config.json to be written with weights of this model.
std::string saved_config(const ModelConfig& config, const Tokenizer& tokenizer);
std::string saved_generation_config(const Tokenizer& tokenizer);

}  // namespace lode
