#include <algorithm>

#include "core/fail.h"
#include "core/file.h"
#include "train/bench.h"

namespace lode {
namespace {

struct Shape {
  const char *name, *config;
};
constexpr Shape kShapes[] = {
    {"demo",
     R"({"model_type":"llama","vocab_size":4096,"hidden_size":256,"intermediate_size":768,"num_hidden_layers":8,
           "num_attention_heads":4,"num_key_value_heads":4})"},
    {"gpt2-124m",
     R"({"model_type":"gpt2","n_positions":2048,"vocab_size":50257,"embd_pdrop":0,"resid_pdrop":0,"attn_pdrop":0})"},
    {"llama-124m",
     R"({"model_type":"llama","vocab_size":50304,"hidden_size":768,"intermediate_size":2048,"num_hidden_layers":12,
           "num_attention_heads":12,"tie_word_embeddings":true})"},
    {"smollm2-135m",
     R"({"model_type":"llama","vocab_size":49152,"hidden_size":576,"intermediate_size":1536,"num_hidden_layers":30,
           "num_attention_heads":9,"num_key_value_heads":3,"tie_word_embeddings":true})"},
    {"qwen2-0.5b",
     R"({"model_type":"qwen2","vocab_size":151936,"hidden_size":896,"intermediate_size":4864,"num_hidden_layers":24,
         "num_attention_heads":14,"num_key_value_heads":2,"rope_theta":1000000,"rms_norm_eps":1e-6,
         "tie_word_embeddings":true})"},
    {"qwen2-1.5b",
     R"({"model_type":"qwen2","vocab_size":151936,"hidden_size":1536,"intermediate_size":8960,"num_hidden_layers":28,
         "num_attention_heads":12,"num_key_value_heads":2,"rope_theta":1000000,"rms_norm_eps":1e-6,
         "tie_word_embeddings":true})"},
};

}  // namespace

std::string bench_model_names() {
  std::string names;
  for (const Shape& shape : kShapes) names += format("{}{}", names.empty() ? "" : ", ", shape.name);
  return names;
}

ModelConfig bench_config(const std::string& name) {
  if (real_files().exists(name)) return read_model_config(real_files(), name);
  const auto* shape = std::ranges::find(kShapes, name, &Shape::name);
  if (shape == std::end(kShapes)) {
    fail(ErrorKind::usage, "bench: no shape \"{}\"; known: {}, or give a folder or config.json", name,
         bench_model_names());
  }
  ModelConfig config;
  config.file = format("built-in shape {}", name);
  config.json = parse_json(shape->config, config.file);
  const Family& family = find_family(config.json.at("model_type").as_string(), config.file);
  config.spec = family.spec(config.json, config.file);
  config.spec.model_type = family.model_type;
  config.names = family.names();
  return config;
}

}  // namespace lode
