// Qwen2 and Qwen2.5 (Yang et al. 2024, arXiv 2407.10671): llama with biases of queries, keys and values;
// Hugging Face's Qwen2ForCausalLM.
#include "models/llama_like.h"

namespace lode {
namespace {

DecoderSpec qwen2_spec(const Json& json, const std::string& file) {
  const ConfigReader config(json, file);
  LlamaDefaults defaults;
  defaults.vocab_size = 151936;
  defaults.intermediate_size = 22016;
  defaults.num_key_value_heads = 32;
  defaults.max_position_embeddings = 32768;
  DecoderSpec spec = llama_like_spec(config, defaults);
  spec.qkv_bias = true;
  set_qwen_windows(config, spec);
  return spec;
}

}  // namespace

extern const Family kQwen2;
const Family kQwen2{"qwen2", "Qwen2ForCausalLM", qwen2_spec, llama_like_names};

}  // namespace lode
