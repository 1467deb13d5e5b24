// Decoders whose products with frozen weights are int8.
#include <algorithm>

#include "nn/policy_decoder.h"

namespace lode::test {
namespace {

TEST(Int8Products, LossesAndGradientsAreNearThoseOfFloats) {
  for (const DecoderSpec& spec : {llama_spec(), gpt2_spec(), gemma_spec()}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(name_of(dtype));
      WeightPolicy policy = lora(everything());
      policy.frozen_dtype = dtype;
      PolicyDecoder floats(spec, policy, dtype);
      policy.int8_products = true;
      PolicyDecoder int8(spec, policy, dtype);
      fill_adapter(floats);
      fill_adapter(int8);
      const std::vector<Batch> batches = {pack(random_samples({40, 60, 1}, 64))};
      const StepResult a = step(floats, batches), b = step(int8, batches);
      EXPECT_NEAR(b.losses[0], a.losses[0], 0.01 * a.losses[0]);
      EXPECT_LE(distance(a.gradients, b.gradients), 0.1);
      EXPECT_GT(distance(a.gradients, b.gradients), 1e-3);
      EXPECT_EQ(step(int8, batches).gradients, b.gradients) << "from run to run";
    }
  }
}

TEST(Int8Products, TakeThePlaceOfFloatsBesideAnAdapter) {
  WeightPolicy policy = lora({});
  policy.frozen_dtype = DType::bf16;
  policy.int8_products = true;
  PolicyDecoder model(llama_spec(), policy, DType::bf16);
  step(model, {pack(random_samples({20}, 64))});
  std::size_t want = 0, trained = 0, scales = 0;
  for (const Parameter& p : model.list().all()) {
    const auto n = static_cast<std::size_t>(p.numel()), rows = static_cast<std::size_t>(p.rows);
    const bool int8 = p.role == ParameterRole::base && !p.vector && p.kind != ModuleKind::embedding;
    EXPECT_EQ(p.quantized(), int8) << p.name;
    want += int8 ? n + 4 * rows : n * (p.trainable() || p.vector ? 4 : 2);
    scales += int8 ? 4 * rows : 0;
    trained += p.trainable() ? n : 0;
  }
  EXPECT_EQ(model.bytes(MemoryTag::weights), want);
  EXPECT_EQ(model.bytes(MemoryTag::derived), 2 * trained + scales);
}

TEST(Int8Products, LeaveTheValuesOfWhatIsSavedAlone) {
  WeightPolicy frozen(true);
  frozen.freeze = FreezeSpec{.trainable_layers = 1};
  WeightPolicy tied = lora({});
  tied.adapter->additional_targets = {"up"};
  for (WeightPolicy policy : {frozen, tied}) {
    policy.frozen_dtype = DType::bf16;
    PolicyDecoder floats(gpt2_spec(), policy, DType::bf16);
    policy.int8_products = true;
    PolicyDecoder int8(gpt2_spec(), policy, DType::bf16);
    step(int8, {pack(random_samples({20}, 64))});
    for (const Parameter& p : int8.list().all()) {
      const bool copied = p.name.find("up.weight") != std::string::npos;
      if (policy.adapter && p.kind == ModuleKind::linear && !copied) continue;
      ASSERT_FALSE(p.quantized()) << p.name;
      const Tensor a(int8.memory, MemoryTag::workspace, DType::f32, p.rows, p.cols);
      const Tensor b(floats.memory, MemoryTag::workspace, DType::f32, p.rows, p.cols);
      p.read_rows(int8.context, 0, a.view());
      floats.list().find(p.name)->read_rows(floats.context, 0, b.view());
      for (std::int64_t r = 0; r < p.rows; ++r)
        ASSERT_TRUE(
            std::equal(a.view().row<float>(r), a.view().row<float>(r) + p.cols, b.view().row<float>(r)));
    }
  }
}

TEST(Int8Products, FollowValuesThatAreWrittenAnew) {
  WeightPolicy policy(false);
  policy.int8_products = true;
  PolicyDecoder model(llama_spec(), policy);
  const Batch batch = pack(random_samples({9, 30}, 64), 1);
  const std::vector<float> before = logits_of(model, batch);
  model.decoder.initialise(model.context, 8);
  const std::vector<float> other = logits_of(model, batch);
  EXPECT_NE(other, before);
  model.decoder.initialise(model.context, 3);
  EXPECT_EQ(logits_of(model, batch), before);
}

}  // namespace
}  // namespace lode::test
