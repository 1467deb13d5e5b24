// Generation with cached keys and values against the forward pass over the whole sequence, for every family.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "models/model_test.h"

namespace lode::test {
namespace {

std::vector<std::string> one_of_each_family() {
  return {llama_config(),
          gpt2_config(),
          tiny_config("mistral", R"("sliding_window": 5)"),
          tiny_config("qwen2", R"("use_sliding_window": true, "max_window_layers": 2, "sliding_window": 5)"),
          tiny_config("qwen3", R"("head_dim": 16)"),
          tiny_config("smollm3", R"("no_rope_layer_interval": 2, "use_sliding_window": true,
                                    "sliding_window": 5)"),
          tiny_config("gemma3_text", R"("head_dim": 16, "sliding_window": 5, "sliding_window_pattern": 2)")};
}

TEST(Cache, EveryFamilyIsListed) {
  std::vector<std::string> listed;
  for (const std::string& text : one_of_each_family())
    listed.push_back(parse_model_config(text).spec.model_type);
  for (const std::string_view family : known_families())
    EXPECT_EQ(std::ranges::count(listed, family), 1) << family;
}

Value step(TinyModel& model, std::span<const std::int32_t> tokens, KvCache* cache) {
  const auto count = static_cast<std::int32_t>(tokens.size());
  const auto first = static_cast<std::int32_t>(cache == nullptr ? 0 : cache->length());
  const Batch batch(
      {tokens.begin(), tokens.end()}, std::vector<std::int32_t>(tokens.size(), kIgnoreLabel),
      std::vector<float>(tokens.size()),
      Segments(std::span(&count, 1), std::vector<std::int64_t>{0}, count, std::span(&first, 1)));
  return model.decoder.forward(model.context, batch, cache);
}

// A prompt, single tokens and a longer continuation: more tokens than a window holds.
void check_generation(const std::string& config, DType dtype, double tolerance) {
  TinyModel model(config);
  model.context.dtype = dtype;
  fill_by_rule(model.decoder.parameters());
  const std::vector<std::int32_t> tokens = {3, 17, 5,  60, 2, 9, 44, 31, 8,  22, 13, 50,
                                            7, 7,  19, 41, 1, 0, 63, 12, 12, 12, 33, 6};
  const DecoderSpec& spec = model.decoder.spec();
  const Value whole = step(model, tokens, nullptr);
  KvCache cache(model.context, spec.layers, spec.kv_heads * spec.head_dim,
                static_cast<std::int64_t>(tokens.size()));
  std::size_t done = 0;
  for (const std::size_t count : {6, 1, 1, 9, 1, 1, 1, 3, 1}) {
    const Value part = step(model, std::span(tokens).subspan(done, count), &cache);
    done += count;
    const Tensor got = model.decoder.last_logits(model.context, part);
    const Tensor want = model.decoder.last_logits(
        model.context, {whole.data.slice_rows(static_cast<std::int64_t>(done) - 1, 1)});
    for (std::int64_t v = 0; v < spec.vocab_size; ++v)
      ASSERT_NEAR(got.view().row<float>(0)[v], want.view().row<float>(0)[v], tolerance) << done;
  }
  EXPECT_EQ(done, tokens.size());
}

TEST(Cache, GenerationEqualsTheWholeForward) {
  for (const std::string& config : one_of_each_family()) {
    SCOPED_TRACE(config);
    check_generation(config, DType::f32, 1e-5);
    check_generation(config, DType::bf16, 0.1);
  }
}

}  // namespace
}  // namespace lode::test
