// Recomputation gives the bits of keeping, in less memory, and is counted.
#include <gtest/gtest.h>

#include "nn/quantized.h"
#include "nn/tiny_decoder.h"
#include "ops/attention.h"

namespace lode::test {
namespace {

using Recompute = ActivationPolicy::Recompute;

struct Kind {
  std::string name;
  ActivationPolicy policy;
};

std::vector<Kind> policies() {
  return {{"full", {.recompute = Recompute::full}},
          {"every second", {.recompute = Recompute::full, .every = 2}},
          {"norms and mlp", {.recompute = Recompute::selective}},
          {"attention", {.recompute = Recompute::selective, .norms = false, .mlp = false, .attention = true}},
          {"all three", {.recompute = Recompute::selective, .attention = true}}};
}

enum class Trained { all, adapters, quantised_with_adapters, adapters_of_layer_1 };

WeightPolicy weights(Trained trained) {
  WeightPolicy policy(trained == Trained::all);
  if (trained == Trained::all) return policy;
  policy.adapter = AdapterSpec{.rank = 3, .dropout = 0.1f};
  if (trained == Trained::adapters_of_layer_1) policy.adapter->targets = {"1.o", "1.down"};
  if (trained == Trained::quantised_with_adapters) quantize_linears(policy, QuantFormat::int8);
  return policy;
}

struct Outcome {
  std::vector<float> gradients, losses;
  double recomputed = 0;
  std::size_t peak = 0;  // activations
  friend bool operator==(const Outcome& a, const Outcome& b) {
    return a.gradients == b.gradients && a.losses == b.losses;
  }
};

class Model {
 public:
  Model(const DecoderSpec& spec, Trained trained, DType dtype)
      : decoder_(context_, spec, names_of(spec), weights(trained)) {
    context_.dtype = dtype;
    context_.training = true;
    context_.seed = 5;
    context_.step = 3;
    decoder_.initialise(context_, 3);
    Rng rng(4, "adapter");  // a B of zeros hides what reaches it
    for (const Parameter& p : decoder_.parameters().all()) {
      if (p.role != ParameterRole::lora) continue;
      for (std::int64_t r = 0; r < p.rows; ++r) {
        for (std::int64_t c = 0; c < p.cols; ++c)
          p.values().row<float>(r)[c] = static_cast<float>(0.1 * rng.next_normal());
      }
      p.storage->changed(false);
    }
    decoder_.parameters().allocate_gradients();
    decoder_.set_embedding_noise(5);
  }

  Outcome run(const ActivationPolicy& policy, const std::vector<Batch>& batches) {
    decoder_.set_activation_policy(policy);
    decoder_.parameters().reset_gradients();
    memory_.reset_peak();
    const double before = decoder_.recomputed_flops();
    Outcome out;
    for (const Batch& batch : batches) {
      Tape tape;
      context_.tape = &tape;
      const TokenLosses losses = decoder_.loss(context_, batch, 0.01f);
      tape.backward(context_);
      context_.tape = nullptr;
      out.losses.insert(out.losses.end(), losses.loss.begin(), losses.loss.end());
    }
    for (const Parameter& p : decoder_.parameters().all()) {
      if (!p.trainable()) continue;
      for (std::int64_t r = 0; r < p.rows; ++r)
        out.gradients.insert(out.gradients.end(), p.gradient().row<float>(r),
                             p.gradient().row<float>(r) + p.cols);
    }
    out.recomputed = decoder_.recomputed_flops() - before;
    out.peak = memory_.use().peak[static_cast<std::size_t>(MemoryTag::activations)];
    return out;
  }

  Context& context() { return context_; }
  Decoder& decoder() { return decoder_; }

 private:
  Memory memory_;
  Facts facts_;
  Workspace workspace_{memory_};
  Context context_{.memory = memory_, .facts = facts_, .kernel = {1, &workspace_}};
  Decoder decoder_;
};

DecoderSpec deep(DecoderSpec spec, std::int64_t layers) {
  spec.layers = layers;
  return spec;
}

std::vector<Batch> two_batches() {
  const auto s = random_samples({9, 2, 17, 30, 4, 45}, 64);
  return {pack(s), pack({s[3], s[0]})};
}

TEST(Recompute, EveryPolicyGivesTheBitsOfKeeping) {
  DecoderSpec dropping = deep(gpt2_spec(), 3);
  dropping.embedding_dropout = dropping.residual_dropout = 0.2f;
  for (const DecoderSpec& spec :
       {deep(llama_spec(), 3), dropping, gemma_spec(), by_length_spec(RotarySpec::Scaling::dynamic)}) {
    for (const Trained trained :
         {Trained::all, Trained::adapters, Trained::quantised_with_adapters, Trained::adapters_of_layer_1}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        Model model(spec, trained, dtype);
        const Outcome kept = model.run({}, two_batches());
        EXPECT_EQ(kept.recomputed, 0);
        for (const auto& [name, policy] : policies()) {
          SCOPED_TRACE(format("{}, {} layers, dropout {}, trained {}, {}", name, spec.layers,
                              spec.residual_dropout, static_cast<int>(trained), name_of(dtype)));
          EXPECT_TRUE(model.run(policy, two_batches()) == kept);
        }
        // The comparison can fail: the next step has other noise.
        ++model.context().step;
        EXPECT_FALSE(model.run({}, two_batches()) == kept);
      }
    }
  }
}

TEST(Recompute, FullKeepsOneTensorOfABlock) {
  const std::vector<Batch> batches = {pack(random_samples({120}, 64))};
  const auto peak = [&](std::int64_t layers, const ActivationPolicy& policy) {
    Model model(deep(llama_spec(), layers), Trained::all, DType::f32);
    return model.run(policy, batches).peak;
  };
  const ActivationPolicy full{.recompute = Recompute::full};
  const std::size_t block_input = 128 * 32 * 4;  // tokens, width, bytes
  EXPECT_EQ(peak(9, full) - peak(5, full), 4 * block_input);
  // Kept: more than ten widths a block (hidden 32, intermediate 40, keys and values 16 each).
  EXPECT_GT(peak(9, {}) - peak(5, {}), 4 * 10 * block_input);
  EXPECT_LT(peak(9, full), peak(9, {}) / 2);
}

TEST(Recompute, SelectiveKeepsWhatIsDearToMake) {
  const std::vector<Batch> batches = {pack(random_samples({120}, 64))};
  const auto growth = [&](const ActivationPolicy& policy) {
    const auto peak = [&](std::int64_t layers) {
      Model model(deep(llama_spec(), layers), Trained::all, DType::f32);
      return model.run(policy, batches).peak;
    };
    return peak(9) - peak(5);
  };
  const std::size_t kept = growth({}), bytes = 4 * 128 * 4;  // layers, tokens, bytes
  EXPECT_EQ(kept - growth({.recompute = Recompute::selective, .mlp = false}), bytes * 2 * 32);
  EXPECT_EQ(kept - growth({.recompute = Recompute::selective, .norms = false}), bytes * 40);
  EXPECT_EQ(kept - growth({.recompute = Recompute::selective, .attention = true}), bytes * (3 * 32 + 40));
}

TEST(Recompute, FlopsDoneAgainAreCountedApart) {
  Model model(deep(llama_spec(), 4), Trained::all, DType::f32);
  const std::vector<Batch> batches = {pack(random_samples({50, 30}, 64))};
  const Segments& segments = batches[0].segments();
  const double before = model.decoder().training_flops(segments, 80);
  const double full = model.run({.recompute = Recompute::full}, batches).recomputed;
  EXPECT_EQ(model.decoder().training_flops(segments, 80), before);
  // The blocks' share of a third of the step: its forward, without the head.
  const double head = 2.0 * 80 * 64 * 32;
  EXPECT_NEAR(full, before / 3 - head, 1e-9 * before);
  EXPECT_NEAR(model.run({.recompute = Recompute::full, .every = 2}, batches).recomputed, full / 2,
              1e-9 * full);
}

TEST(Recompute, AttentionDoneAgainIsCounted) {
  Model model(deep(llama_spec(), 4), Trained::all, DType::f32);
  const std::vector<Batch> batches = {pack(random_samples({50, 30}, 64))};
  EXPECT_EQ(model.run({.recompute = Recompute::selective}, batches).recomputed, 0);
  const double forward = attention_forward_flops(batches[0].segments(), {4, 2, 8, 1});
  EXPECT_EQ(model.run({.recompute = Recompute::selective, .attention = true}, batches).recomputed,
            4 * forward);
}

TEST(Recompute, WithoutATapeNothingIsRecomputed) {
  Model model(llama_spec(), Trained::all, DType::f32);
  model.decoder().set_activation_policy({.recompute = Recompute::full});
  const Batch batch = pack(random_samples({50, 30}, 64));
  const double sum = model.decoder().loss(model.context(), batch, 1).sum;
  model.decoder().set_activation_policy({});
  EXPECT_EQ(model.decoder().loss(model.context(), batch, 1).sum, sum);
  EXPECT_EQ(model.decoder().recomputed_flops(), 0);
}

TEST(Segments, EveryLayerSharesThemOrBuildsItsOwnWithTheSameBits) {
  Model model(deep(by_length_spec(RotarySpec::Scaling::dynamic), 3), Trained::adapters, DType::f32);
  const Outcome shared = model.run({}, two_batches());
  EXPECT_EQ(model.decoder().segments_rebuilt(), 0);
  model.decoder().set_metadata_cache(false);
  EXPECT_TRUE(model.run({}, two_batches()) == shared);
  EXPECT_EQ(model.decoder().segments_rebuilt(), 2 * 3);
  EXPECT_TRUE(model.run({.recompute = Recompute::full}, two_batches()) == shared);
  EXPECT_EQ(model.decoder().segments_rebuilt(), 2 * 3 + 2 * 2 * 3);
}

TEST(Segments, OnesThatAreStaleCannotBeUsed) {
  const auto samples = random_samples({9, 2, 17, 30, 4, 45}, 64);
  for (const DecoderSpec& spec : {llama_spec(), by_length_spec(RotarySpec::Scaling::dynamic)}) {
    Model model(spec, Trained::all, DType::f32);
    Context& context = model.context();
    // Another batch takes the place of the one that the forward saw: same tokens, other boundaries.
    std::vector<Sample> cut = samples;
    cut[5].tokens.resize(20);
    cut.push_back({200, std::vector<std::int32_t>(25, 1)});
    Batch batch = pack(samples);
    ASSERT_EQ(batch.num_tokens(), pack(cut).num_tokens());
    Tape tape;
    context.tape = &tape;
    model.decoder().loss(context, batch, 1);
    batch = pack(cut);
    try {
      tape.backward(context);
      FAIL() << "gradients of other segments";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::internal);
      EXPECT_NE(std::string(error.what()).find("its segments are others"), std::string::npos);
    }
    tape.clear();
    context.tape = nullptr;
  }
  // Angles made for one batch do not serve another, not even between its forward and its backward.
  Model model(by_length_spec(RotarySpec::Scaling::dynamic), Trained::all, DType::f32);
  const Batch first = pack(samples), second = pack({samples[5], samples[3]});
  Tape tape;
  model.context().tape = &tape;
  model.decoder().loss(model.context(), first, 1);
  model.context().tape = nullptr;
  model.decoder().loss(model.context(), second, 1);
  EXPECT_THROW(tape.backward(model.context()), Error);
  EXPECT_EQ(Segments(first.segments()).generation(), first.segments().generation());
  EXPECT_NE(pack(samples).segments().generation(), first.segments().generation());
}

}  // namespace
}  // namespace lode::test
