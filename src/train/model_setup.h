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
// the model's own. An adapter ("": none) made for a larger vocabulary makes the config's grow. Throws
// Error(data) on what does not fit.
struct ModelParts {
  ModelConfig config;
  Tokenizer tokenizer;
  bool new_tokens = false;  // of the recipe: embedding and head are trained whole
};
ModelParts read_model_parts(FileSystem& files, const std::string& model_path,
                            const std::string& tokenizer_path, const std::string& adapter = {});

// The same for a recipe's model, with add_tokens and add_special_tokens. They take rows that no token has
// (many models keep some); where these do not suffice the vocabulary grows, unless resize_vocab forbids it:
// Error(usage) then.
ModelParts read_recipe_parts(FileSystem& files, const Recipe& recipe, const std::string& model_path);

struct Model {
  ModelConfig config;
  Tokenizer tokenizer;
  std::unique_ptr<Decoder> decoder;
  std::string base, adapter;  // paths; adapter "": none
};

// Adds the decoder with its weights, in the precision that the engine computes with: for evaluation and
// generation. A `path` that is a PEFT adapter stands for it on the base that it names; `adapter` ("": none)
// puts one on `path`: a PEFT folder or a GGUF file.
Model load_model(FileSystem& files, Engine& engine, const std::string& path, const std::string& adapter = {});

// An adapter that a run of ours saved goes on with the tokenizer that it was trained with; throws Error(data)
// for another one. Adapters from elsewhere say nothing about theirs.
void require_adapter_tokenizer(FileSystem& files, const std::string& adapter, const Tokenizer& tokenizer);

// Which weights a recipe trains and how the others are kept.
WeightPolicy weight_policy(FileSystem& files, const Recipe& recipe, const std::string& model_path,
                           const ModelParts& parts, DType compute);

// Chooses the arithmetic of products with frozen weights and says so in a fact; nothing when none is frozen.
void choose_frozen_compute(Facts& facts, Recipe::FrozenCompute asked, DType compute, WeightPolicy& policy);

// The values that training starts with. base: the folder or file of the weights; "": initial values from the
// context's seed. adapter: the folder of the pairs when the decoder has some; "": initial ones. Throws
// Error(data) as the readers do.
void load_values(FileSystem& files, const ModelConfig& config, const std::string& base,
                 const std::string& adapter, Decoder& decoder, Context& context);

// Facts about what the config asks for and no kernel does.
void report_model_facts(Facts& facts, const DecoderSpec& spec, bool training);

}  // namespace lode
