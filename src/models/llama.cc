// Llama (Touvron et al. 2023, arXiv 2302.13971) and its fine-tunes; Hugging Face's LlamaForCausalLM.
#include "models/llama_like.h"

namespace lode {
namespace {

DecoderSpec llama_spec(const Json& json, const std::string& file) {
  const ConfigReader config(json, file);
  DecoderSpec spec = llama_like_spec(config, {});
  spec.qkv_bias = spec.output_bias = config.boolean("attention_bias", false);
  spec.mlp_bias = config.boolean("mlp_bias", false);
  return spec;
}

}  // namespace

extern const Family kLlama;
const Family kLlama{"llama", "LlamaForCausalLM", llama_spec, llama_like_names};

}  // namespace lode
