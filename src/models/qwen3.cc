// Qwen3 (Yang et al. 2025, arXiv 2505.09388): llama with a norm on each query and key head; Hugging Face's
// Qwen3ForCausalLM.
#include "models/llama_like.h"

namespace lode {
namespace {

DecoderSpec qwen3_spec(const Json& json, const std::string& file) {
  const ConfigReader config(json, file);
  LlamaDefaults defaults;
  defaults.vocab_size = 151936;
  defaults.intermediate_size = 22016;
  defaults.num_key_value_heads = 32;
  defaults.head_dim = 128;
  defaults.max_position_embeddings = 32768;
  DecoderSpec spec = llama_like_spec(config, defaults);
  spec.head_norms = true;
  spec.qkv_bias = spec.output_bias = config.boolean("attention_bias", false);
  set_qwen_windows(config, spec);
  return spec;
}

DecoderNames qwen3_names() {
  DecoderNames names = llama_like_names();
  names.q_norm = "model.layers.{}.self_attn.q_norm.weight";
  names.k_norm = "model.layers.{}.self_attn.k_norm.weight";
  return names;
}

}  // namespace

extern const Family kQwen3;
const Family kQwen3{"qwen3", "Qwen3ForCausalLM", qwen3_spec, qwen3_names};

}  // namespace lode
