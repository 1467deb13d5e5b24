// Logits of tiny models as computed by Hugging Face transformers 4.57.1 (f32, CPU, eager attention).
#include <gtest/gtest.h>

#include <cmath>

#include "models/model_test.h"

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
  double sum = 0;
  for (std::int64_t t = 0; t < 16; ++t) {
    const Tensor logits = model.decoder.last_logits(model.context, {hidden.data.slice_rows(t, 1)});
    ASSERT_EQ(logits.cols(), 64);
    for (std::int64_t v = 0; v < 64; ++v)
      sum += static_cast<double>(std::abs(logits.view().row<float>(0)[v]));
    for (std::int64_t v = 0; v < 3 && t == 15; ++v) {
      EXPECT_NEAR(logits.view().row<float>(0)[v], golden.logits[v], 7e-5) << v;
    }
  }
  EXPECT_NEAR(sum / (16 * 64), golden.mean, 1e-5);
}

const std::string kLlama3 =
    R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
        "original_max_position_embeddings": 16})";

INSTANTIATE_TEST_SUITE_P(
    All, GoldenLogits,
    testing::Values(
        Golden{"llama", llama_config(), {0.0942, -0.2938, 0.9051}, 0.71548},
        Golden{"llama3_biased_tied",
               llama_config(kLlama3 +
                            R"(, "attention_bias": true, "mlp_bias": true, "tie_word_embeddings": true)"),
               {0.5285, 0.4270, -0.7678},
               0.65214},
        Golden{"llama_linear",
               llama_config(R"("rope_scaling": {"rope_type": "linear", "factor": 2})"),
               {0.8467, -0.8643, 1.0471},
               0.71552},
        Golden{"llama_linear_old_spelling",
               llama_config(R"("rope_scaling": {"type": "linear", "factor": 2.0})"),
               {0.8467, -0.8643, 1.0471},
               0.71552},
        Golden{"llama_linear_new_spelling",
               llama_config(R"("rope_theta": 77, "rope_scaling": {"type": "yarn"}, "rope_parameters":
                   {"rope_type": "linear", "factor": 2, "rope_theta": 10000})"),
               {0.8467, -0.8643, 1.0471},
               0.71552},
        Golden{"gpt2", gpt2_config(), {-0.4594, -0.2501, -0.7265}, 0.71370},
        Golden{"gpt2_inverse_layer",
               gpt2_config(R"("scale_attn_by_inverse_layer_idx": true, "n_inner": 50)"),
               {0.5533, -0.2394, 1.1487},
               0.76243}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace lode::test
