// Mistral (Jiang et al. 2023, arXiv 2310.06825): llama whose layers all attend within a sliding window, where
// the config sets one; Hugging Face's MistralForCausalLM.
#include "models/llama_like.h"

namespace lode {
namespace {

DecoderSpec mistral_spec(const Json& json, const std::string& file) {
  const ConfigReader config(json, file);
  LlamaDefaults defaults;
  defaults.intermediate_size = 14336;
  defaults.num_key_value_heads = 8;
  defaults.max_position_embeddings = 131072;
  DecoderSpec spec = llama_like_spec(config, defaults);
  const auto all = [](std::int64_t) { return true; };
  set_windows(spec, read_sliding_layers(config, spec.layers, all), read_window(config, 4096));
  return spec;
}

}  // namespace

extern const Family kMistral;
const Family kMistral{"mistral", "MistralForCausalLM", mistral_spec, llama_like_names};

}  // namespace lode
