// Ollama's Modelfile for an exported GGUF model.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace lode {

// gguf: the file's name, in the same folder. A chat template that makes of a conversation what ChatML, Llama
// 3 or Gemma make of it gets a TEMPLATE, and a SYSTEM when it has a system message of its own; others are
// left to Ollama, which looks at the template in the GGUF file.
std::string ollama_modelfile(const std::string& gguf, const Tokenizer& tokenizer);

}  // namespace lode
