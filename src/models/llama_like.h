// What the families around llama share: their keys, whose defaults differ, and their tensor names.
#pragma once

#include <functional>

#include "models/family.h"
#include "models/rope.h"

namespace lode {

struct LlamaDefaults {
  std::int64_t vocab_size = 32000, hidden_size = 4096, intermediate_size = 11008, num_hidden_layers = 32,
               num_attention_heads = 32;
  std::int64_t num_key_value_heads = 0;  // 0: as many as attention heads
  std::int64_t head_dim = 0;             // 0: hidden_size / num_attention_heads
  std::int64_t max_position_embeddings = 2048;
  double rope_theta = 10000;
  bool tie_word_embeddings = false;
  std::string_view activation_key = "hidden_act", activation = "silu";
};

// Sizes, RMS norms, rotary positions, a gated MLP; no biases, every layer with full attention.
DecoderSpec llama_like_spec(const ConfigReader& config, const LlamaDefaults& defaults);
DecoderNames llama_like_names();

// layer_types says which layers slide; without it `slides` does.
std::vector<bool> read_sliding_layers(const ConfigReader& config, std::int64_t layers,
                                      const std::function<bool(std::int64_t)>& slides);
// The key sliding_window: null or 0: none, 0 here; absent: `otherwise`.
std::int64_t read_window(const ConfigReader& config, std::int64_t otherwise);
// Sets each layer's window.
void set_windows(DecoderSpec& spec, const std::vector<bool>& sliding, std::int64_t window);
// Qwen's three keys: use_sliding_window, sliding_window, max_window_layers.
void set_qwen_windows(const ConfigReader& config, DecoderSpec& spec);

}  // namespace lode
