// A decoder made from the text of a config.json.
#pragma once

#include <memory>

#include "models/family.h"
#include "models/fill_rule.h"
#include "models/weights.h"
#include "temp_folder.h"

namespace lode::test {

// The keys that golden values share, and what they add: `overrides` ends the object.
inline std::string tiny_config(const std::string& model_type, const std::string& overrides = "",
                               int max_positions = 64, int layers = 4) {
  return format(R"({{"model_type": "{}", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 40, )"
                R"("num_hidden_layers": {}, "num_attention_heads": 4, "num_key_value_heads": 2, )"
                R"("max_position_embeddings": {}, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2)",
                model_type, layers, max_positions) +
         (overrides.empty() ? "" : ", " + overrides) + "}";
}
inline std::string llama_config(const std::string& overrides = "") {
  return tiny_config("llama", overrides);
}
inline std::string gpt2_config(const std::string& overrides = "") {
  return R"({"model_type": "gpt2", "vocab_size": 64, "n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 64)" +
         (overrides.empty() ? "" : ", " + overrides) + "}";
}

inline ModelConfig parse_model_config(const std::string& text) {
  const TempFolder folder;
  write_file_atomically(real_files(), folder / "config.json", text);
  return read_model_config(real_files(), folder.path());
}

struct TinyModel {
  Memory memory;
  Facts facts;
  Workspace workspace{memory};
  Context context{.memory = memory, .facts = facts, .kernel = {1, &workspace}};
  ModelConfig config;
  Decoder decoder;

  explicit TinyModel(const std::string& text, bool trainable = false)
      : config(parse_model_config(text)), decoder(context, config.spec, config.names, trainable) {}
};

// Tokens of samples behind each other, each predicting its next; every target weighs 1.
inline Batch packed_batch(const std::vector<std::vector<std::int32_t>>& samples) {
  std::vector<std::int32_t> tokens, labels, lengths;
  std::vector<float> weights;
  std::vector<std::int64_t> ids;
  for (const auto& sample : samples) {
    for (std::size_t i = 0; i < sample.size(); ++i) {
      const bool last = i + 1 == sample.size();
      tokens.push_back(sample[i]);
      labels.push_back(last ? kIgnoreLabel : sample[i + 1]);
      weights.push_back(last ? 0.0f : 1.0f);
    }
    lengths.push_back(static_cast<std::int32_t>(sample.size()));
    ids.push_back(static_cast<std::int64_t>(ids.size()));
  }
  return Batch(tokens, labels, weights, Segments(lengths, ids, static_cast<std::int32_t>(tokens.size())));
}

}  // namespace lode::test
