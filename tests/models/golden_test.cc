// Logits of tiny models as computed by Hugging Face transformers 4.57.1 (f32, CPU, eager attention).
#include <gtest/gtest.h>

#include <cmath>

#include "models/model_test.h"
#include "models/parity.h"

namespace lode::test {
namespace {

TEST(FillRule, HasItsCheckValues) {
  static_assert(fnv1a("a") == 0xe40c292cu);
  const Parameter norm{.name = "model.norm.weight", .cols = 32, .vector = true};
  const Parameter head{.name = "lm_head.weight", .rows = 64, .cols = 32};
  const float norms[] = {0.7622819f, 1.0993309f, 0.8332532f, 0.9711182f};
  const float heads[] = {0.15483356f, 0.22238383f, -0.24212307f, 0.18944389f};
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(fill_value(norm, i), norms[i], 1e-7);
    EXPECT_NEAR(fill_value(head, i), heads[i], 1e-7);
  }
}

// Logits of the last position for tokens 0, 1 and 2; mean of |logits| over all positions and tokens.
struct Golden {
  const char* name;
  std::string config;
  double logits[3], mean;
};

class GoldenLogits : public testing::TestWithParam<Golden> {};

TEST_P(GoldenLogits, Match) {
  const Golden& golden = GetParam();
  TinyModel model(golden.config);
  fill_by_rule(model.decoder.parameters());
  const Batch batch = packed_batch({{3, 17, 5, 60, 2, 9, 44, 31, 8, 22, 13, 50, 7, 7, 19, 41}});
  const Value hidden = model.decoder.forward(model.context, batch);
  double sum = 0, worst = 0;
  for (std::int64_t t = 0; t < 16; ++t) {
    const Tensor logits = model.decoder.last_logits(model.context, {hidden.data.slice_rows(t, 1)});
    ASSERT_EQ(logits.cols(), 64);
    for (std::int64_t v = 0; v < 64; ++v)
      sum += static_cast<double>(std::abs(logits.view().row<float>(0)[v]));
    for (std::int64_t v = 0; v < 3 && t == 15; ++v) {
      const double got = logits.view().row<float>(0)[v];
      // Golden values have four decimals.
      EXPECT_NEAR(got, golden.logits[v], 7e-5) << v;
      worst = std::max(worst, std::abs(got - golden.logits[v]));
    }
  }
  EXPECT_NEAR(sum / (16 * 64), golden.mean, 1e-5);
  Parity::table().add(format("| {} | golden row | {:.1e} | | | | |", golden.name, worst));
}

const std::string kLlama3 =
    R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
        "original_max_position_embeddings": 16})";
const std::string kYarn =
    R"("rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 16})";

std::vector<Golden> llama_rows() {
  return {
      {"llama", llama_config(), {0.0942, -0.2938, 0.9051}, 0.71548},
      {"llama3_biased_tied",
       llama_config(kLlama3 + R"(, "attention_bias": true, "mlp_bias": true, "tie_word_embeddings": true)"),
       {0.5285, 0.4270, -0.7678},
       0.65214},
      {"llama_yarn", llama_config(kYarn + R"(, "head_dim": 12)"), {-0.2125, -0.1640, -0.4599}, 0.66837},
      {"llama_dynamic",
       tiny_config("llama", R"("rope_scaling": {"rope_type": "dynamic", "factor": 2})", 12),
       {0.1438, -0.3632, 0.9164},
       0.71622},
      {"llama_linear",
       llama_config(R"("rope_scaling": {"rope_type": "linear", "factor": 2})"),
       {0.8467, -0.8643, 1.0471},
       0.71552},
      {"llama_linear_old_spelling",
       llama_config(R"("rope_scaling": {"type": "linear", "factor": 2.0})"),
       {0.8467, -0.8643, 1.0471},
       0.71552},
      {"llama_linear_new_spelling",
       llama_config(R"("rope_theta": 77, "rope_scaling": {"type": "yarn"}, "rope_parameters":
                   {"rope_type": "linear", "factor": 2, "rope_theta": 10000})"),
       {0.8467, -0.8643, 1.0471},
       0.71552},
      {"gpt2", gpt2_config(), {-0.4594, -0.2501, -0.7265}, 0.71370},
      {"gpt2_inverse_layer",
       gpt2_config(R"("scale_attn_by_inverse_layer_idx": true, "n_inner": 50)"),
       {0.5533, -0.2394, 1.1487},
       0.76243},
  };
}

std::vector<Golden> other_rows() {
  const std::string gemma3 = R"("head_dim": 16, "sliding_window": 5, "query_pre_attn_scalar": 20, )";
  const std::string sliding = "\"sliding_attention\", ", full = "\"full_attention\"";
  return {
      {"mistral", tiny_config("mistral", R"("sliding_window": 5)"), {-0.9895, -0.7539, 1.5636}, 0.66846},
      {"mistral_no_window",
       tiny_config("mistral", R"("sliding_window": null, "head_dim": 16)"),
       {-1.3409, -0.4273, -0.6264},
       0.71575},
      {"qwen2", tiny_config("qwen2"), {-1.6316, -1.0084, 0.7882}, 0.67829},
      {"qwen2_window_tied",
       tiny_config("qwen2", R"("use_sliding_window": true, "max_window_layers": 2, "sliding_window": 5,
                   "tie_word_embeddings": true)"),
       {0.4890, -0.5503, 0.0174},
       0.67054},
      {"qwen2_window_by_layer_types",
       tiny_config("qwen2", R"("use_sliding_window": true, "max_window_layers": 0, "sliding_window": 5,
                   "tie_word_embeddings": true, "layer_types": ["full_attention", "full_attention",
                   "sliding_attention", "sliding_attention"])"),
       {0.4890, -0.5503, 0.0174},
       0.67054},
      {"qwen3", tiny_config("qwen3", R"("head_dim": 16)"), {-1.1401, -0.5724, -0.7985}, 0.72055},
      {"qwen3_biased_yarn",
       tiny_config("qwen3", R"("head_dim": 16, "attention_bias": true, )" + kYarn),
       {-1.2988, -0.1061, 0.2361},
       0.73685},
      {"smollm3",
       tiny_config("smollm3", R"("no_rope_layer_interval": 2)"),
       {0.5469, -0.9498, 0.0480},
       0.67424},
      {"smollm3_window",
       tiny_config("smollm3", R"("no_rope_layers": [1, 0, 1, 0], "use_sliding_window": true,
                   "sliding_window": 5)"),
       {0.3435, -1.1137, -0.3915},
       0.66315},
      {"gemma3_text",
       tiny_config("gemma3_text", gemma3 + R"("rope_scaling": {"rope_type": "linear", "factor": 8})", 64, 7),
       {-3.1520, 1.7570, 0.9470},
       1.29361},
      {"gemma3_text_new_spelling",
       tiny_config("gemma3_text",
                   gemma3 + R"("rope_theta": 3, "rope_parameters": {
                       "full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 1e6},
                       "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}, "layer_types": [)" +
                       sliding + sliding + sliding + sliding + sliding + full + ", " +
                       R"("sliding_attention"])",
                   64, 7),
       {-3.1520, 1.7570, 0.9470},
       1.29361},
  };
}

const auto kName = [](const auto& test) { return std::string(test.param.name); };
INSTANTIATE_TEST_SUITE_P(Llama, GoldenLogits, testing::ValuesIn(llama_rows()), kName);
INSTANTIATE_TEST_SUITE_P(Others, GoldenLogits, testing::ValuesIn(other_rows()), kName);

}  // namespace
}  // namespace lode::test
