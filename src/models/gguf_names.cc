#include "models/gguf_names.h"

namespace lode {
namespace {

struct Architecture {
  std::string_view family, name;
  bool pairs;  // queries and keys are stored in pairs of channels
};
constexpr Architecture kArchitectures[] = {{"llama", "llama", true},         {"mistral", "llama", true},
                                           {"qwen2", "qwen2", false},        {"qwen3", "qwen3", false},
                                           {"gemma3_text", "gemma3", false}, {"gpt2", "gpt2", false},
                                           {"smollm3", "smollm3", true}};

const Architecture* find(const std::string& family) {
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.family == family) return &architecture;
  }
  return nullptr;
}

std::string bias_of(std::string_view weight) {
  constexpr std::string_view kEnding = "weight";
  LODE_ASSERT(weight.ends_with(kEnding));
  return std::string(weight.substr(0, weight.size() - kEnding.size())) + "bias";
}

}  // namespace

std::string gguf_architecture(const ModelConfig& config) {
  const Architecture* found = find(config.spec.model_type);
  if (found == nullptr)
    fail(ErrorKind::data, "{}: models of type {} cannot be written as GGUF", config.file,
         config.spec.model_type);
  return std::string(found->name);
}

std::string_view family_of_gguf(std::string_view name) {
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) return architecture.family;
  }
  return "";
}

std::map<std::string, GgufPlace, std::less<>> gguf_places(const ModelConfig& config) {
  const DecoderNames& names = config.names;
  const DecoderSpec& spec = config.spec;
  const Architecture* architecture = find(spec.model_type);
  LODE_ASSERT(architecture != nullptr);
  const std::int64_t q = architecture->pairs ? spec.heads : 0, k = architecture->pairs ? spec.kv_heads : 0;
  const float offset = spec.norm_offset;
  const struct {
    const std::string& pattern;
    std::string_view name;
    std::int64_t heads = 0;
    float offset = 0;
  } rows[] = {{names.embedding, "token_embd.weight"},
              {names.positions, "position_embd.weight"},
              {names.final_norm, "output_norm.weight", 0, offset},
              {names.head, "output.weight"},
              {names.attention_norm, "blk.{}.attn_norm.weight", 0, offset},
              {names.mlp_norm, "blk.{}.ffn_norm.weight", 0, offset},
              {names.attention_post_norm, "blk.{}.post_attention_norm.weight", 0, offset},
              {names.mlp_post_norm, "blk.{}.post_ffw_norm.weight", 0, offset},
              {names.q, "blk.{}.attn_q.weight", q},
              {names.k, "blk.{}.attn_k.weight", k},
              {names.v, "blk.{}.attn_v.weight"},
              {names.qkv, "blk.{}.attn_qkv.weight"},
              {names.output, "blk.{}.attn_output.weight"},
              {names.q_norm, "blk.{}.attn_q_norm.weight", 0, offset},
              {names.k_norm, "blk.{}.attn_k_norm.weight", 0, offset},
              {names.gate, "blk.{}.ffn_gate.weight"},
              {names.up, "blk.{}.ffn_up.weight"},
              {names.down, "blk.{}.ffn_down.weight"}};
  std::map<std::string, GgufPlace, std::less<>> places;
  for (const auto& row : rows) {
    if (row.pattern.empty()) continue;
    const bool layered = row.pattern.find("{}") != std::string::npos;
    for (std::int64_t i = 0; i < (layered ? spec.layers : 1); ++i) {
      const std::string name = layered ? format(row.pattern, i) : row.pattern,
                        there = layered ? format(row.name, i) : std::string(row.name);
      places[name] = {there, row.heads, row.offset};
      places[bias_of(name)] = {bias_of(there), row.heads, 0};
    }
  }
  return places;
}

}  // namespace lode
