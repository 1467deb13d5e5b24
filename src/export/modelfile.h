// Ollama's Modelfile for an exported GGUF model.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace lode {

// gguf: the file's name, in the same folder. Known chat formats get a TEMPLATE; others are left to the
// template in the GGUF file.
std::string ollama_modelfile(const std::string& gguf, const Tokenizer& tokenizer);

}  // namespace lode
