#include "nn/adapter.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/elementwise.h"
#include "nn/linear.h"
#include "nn/policy_decoder.h"
#include "nn/quantized.h"

namespace lode::test {
namespace {

TEST(Adapter, AtTheStartItIsTheBase) {
  for (const DecoderSpec& spec : {llama_spec(), gpt2_spec()}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      PolicyDecoder base(spec, false, dtype), adapted(spec, lora(everything()), dtype);
      const Batch batch = pack(random_samples({9, 30}, 64), 1);
      EXPECT_EQ(logits_of(adapted, batch), logits_of(base, batch));
    }
  }
}

TEST(Adapter, SwitchedOffItIsTheBaseBitForBit) {
  for (const DecoderSpec& spec : {llama_spec(), gpt2_spec()}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      PolicyDecoder base(spec, false, dtype), adapted(spec, lora(everything()), dtype);
      fill_adapter(adapted);
      for (const FullCopy& copy : adapted.list().copies())
        fill(adapted.context.kernel, adapted.list().all()[copy.copy].values(), 0.5f);
      const Batch batch = pack(random_samples({9, 30}, 64), 1);
      const std::vector<float> want = logits_of(base, batch);
      EXPECT_NE(logits_of(adapted, batch), want);
      {
        const WithoutAdapters off(adapted.context);
        EXPECT_EQ(logits_of(adapted, batch), want);
      }
      EXPECT_NE(logits_of(adapted, batch), want) << "on again";
    }
  }
}

TEST(Adapter, NothingIsRecordedWhileOff) {
  PolicyDecoder model(llama_spec(), lora({}));
  Tape tape;
  model.context.tape = &tape;
  const Batch batch = pack(random_samples({9}, 64));
  {
    const WithoutAdapters off(model.context);
    model.decoder.loss(model.context, batch, 1);
  }
  EXPECT_EQ(tape.size(), 0u);
  EXPECT_EQ(model.context.tape, &tape);
  model.decoder.loss(model.context, batch, 1);
  EXPECT_GT(tape.size(), 0u);
}

TEST(Adapter, AnyPackingAndSplitGivesTheSameGradients) {
  for (const DecoderSpec& spec : {llama_spec(), gpt2_spec()}) {
    for (const float dropout : {0.0f, 0.3f}) {
      SCOPED_TRACE(dropout);
      AdapterSpec adapter = everything();
      adapter.dropout = dropout;
      PolicyDecoder model(spec, lora(adapter));
      fill_adapter(model);
      model.context.training = true;
      model.context.seed = 9;
      model.context.step = 4;
      model.decoder.set_embedding_noise(dropout > 0 ? 5 : 0);
      const std::vector<Sample> s = random_samples({9, 2, 17, 30, 4, 45}, 64);
      std::vector<Batch> one_by_one;
      for (const Sample& sample : s) one_by_one.push_back(pack({sample}, 1));
      const StepResult base = step(model, one_by_one);
      for (const std::vector<Batch>& split :
           {std::vector<Batch>{pack(s)},
            {pack({s[2], s[0]}), pack({s[1], s[5], s[3], s[4]})},
            {pack({s[4]}), pack({s[0], s[1]}), pack({s[5]}), pack({s[3], s[2]}, 1)}}) {
        const StepResult other = step(model, split);
        EXPECT_LE(distance(base.gradients, other.gradients), 1e-6);
        EXPECT_NEAR(base.losses[0], other.losses[0], 1e-6 * base.losses[0]);
      }
      if (dropout == 0) continue;
      model.context.step = 5;
      EXPECT_GT(distance(base.gradients, step(model, one_by_one).gradients), 1e-3) << "another mask";
    }
  }
}

// What the pairs beside q and k, all ones on a base of zeros, make of ones: their masks' sums.
struct MaskSums {
  std::vector<float> q, k;
  friend bool operator==(const MaskSums&, const MaskSums&) = default;
};

MaskSums mask_sums(float dropout, const std::vector<std::string>& targets) {
  Memory memory;
  Facts facts;
  Workspace workspace{memory};
  Context context{.memory = memory, .facts = facts, .kernel = {1, &workspace}};
  context.training = true;
  ParameterList list(memory, lora({.rank = 1, .alpha = 1, .dropout = dropout, .targets = targets}));
  const Linear linear(list, {.parts = {{"0.q.weight", 1}, {"0.k.weight", 1}}, .cols = 16});
  for (const Parameter& p : list.all()) {
    fill(context.kernel, p.values(), p.role == ParameterRole::base ? 0.0f : 1.0f);
    p.storage->changed(false);
  }
  const Batch batch = pack({{5, std::vector<std::int32_t>(40, 1)}}, 1);
  Value x{Tensor(memory, MemoryTag::activations, DType::f32, 40, 16)};
  fill(context.kernel, x.data.view(), 1.0f);
  const Value y = linear(context, x, batch);
  MaskSums sums;
  for (std::int64_t t = 0; t < 40; ++t) {
    sums.q.push_back(y.data.view().row<float>(t)[0]);
    sums.k.push_back(y.data.view().row<float>(t)[1]);
  }
  return sums;
}

TEST(Adapter, EveryModuleDrawsItsOwnDropoutMask) {
  const MaskSums both = mask_sums(0.5f, {"q", "k"}), none = mask_sums(0, {"q", "k"});
  EXPECT_EQ(none.q, none.k);
  int equal = 0;
  for (std::size_t t = 0; t < both.q.size(); ++t) equal += both.q[t] == both.k[t];
  EXPECT_LT(equal, 20) << "sums of 16 coins are equal in one case of seven";
  EXPECT_EQ(mask_sums(0.5f, {"k"}).k, both.k) << "whatever else is adapted";
  EXPECT_EQ(mask_sums(0.5f, {"q"}).q, both.q);
}

TEST(Adapter, MixedPrecisionIsNearF32) {
  PolicyDecoder exact(llama_spec(), lora(everything()));
  WeightPolicy policy = lora(everything());
  policy.frozen_dtype = DType::bf16;
  PolicyDecoder mixed(llama_spec(), policy, DType::bf16);
  fill_adapter(exact);
  fill_adapter(mixed);
  const std::vector<Batch> batches = {pack(random_samples({40, 60}, 64))};
  const StepResult a = step(exact, batches), b = step(mixed, batches);
  EXPECT_LE(distance(a.gradients, b.gradients), 0.05);
  EXPECT_GT(distance(a.gradients, b.gradients), 1e-5);
}

TEST(Adapter, AFrozenBaseTakesTwoBytesAValue) {
  WeightPolicy policy = lora({});
  policy.frozen_dtype = DType::bf16;
  PolicyDecoder model(llama_spec(), policy, DType::bf16);
  step(model, {pack(random_samples({20}, 64))});
  std::size_t want = 0, trained = 0;
  for (const Parameter& p : model.list().all()) {
    const auto n = static_cast<std::size_t>(p.numel());
    want += n * (p.trainable() || p.vector ? 4 : 2);
    trained += p.trainable() ? n : 0;
  }
  EXPECT_EQ(model.bytes(MemoryTag::weights), want);
  EXPECT_EQ(model.bytes(MemoryTag::gradients), 4 * trained);
  EXPECT_EQ(model.bytes(MemoryTag::derived), 2 * trained) << "bf16 copies of A and B alone";
  EXPECT_EQ(static_cast<std::int64_t>(trained), model.list().trainable_numel());
}

std::string error_of(WeightPolicy policy) {
  try {
    const PolicyDecoder model(llama_spec(), std::move(policy));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "";
}

TEST(Adapter, UnknownTargetsListThoseThatExist) {
  AdapterSpec spec;
  spec.targets = {"q", "q_proj"};
  const std::string error = error_of(lora(spec));
  EXPECT_NE(error.find("lora_target: the model has no module \"q_proj\""), std::string::npos) << error;
  EXPECT_NE(error.find("embedding, q, k, v, o, gate, up, down, head"), std::string::npos) << error;
  spec.targets = {"norm"};
  EXPECT_NE(error_of(lora(spec)), "") << "a norm has no matrix";
  spec.targets = {"all"};
  spec.additional_targets = {"nrm"};
  EXPECT_NE(error_of(lora(spec)).find("additional_target"), std::string::npos);
  spec.additional_targets.clear();
  spec.rank = 0;
  EXPECT_NE(error_of(lora(spec)).find("rank of 0"), std::string::npos);
  spec.rank = 41;  // beyond 40, the widest side but for the vocabulary's 64
  EXPECT_NE(error_of(lora(spec)).find("rank of 41: the matrix has no side of more than"), std::string::npos);
}

TEST(Adapter, TargetsAreWholeNames) {
  EXPECT_TRUE(names_module("q_proj", "model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(names_module("self_attn.q_proj", "model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(names_module("lm_head", "lm_head"));
  EXPECT_FALSE(names_module("proj", "model.layers.0.self_attn.q_proj"));
  EXPECT_FALSE(names_module("model.lm_head", "lm_head"));
}

TEST(Adapter, CoverageTellsWhatAndWhy) {
  AdapterSpec spec;
  spec.rank = 4;
  spec.targets = {"q", "1.up"};
  spec.additional_targets = {"norm1"};
  const PolicyDecoder model(llama_spec(), lora(spec));
  std::map<std::string, CoverageRow> rows;
  for (const CoverageRow& row : model.list().coverage()) rows[row.module] = row;
  EXPECT_EQ(rows.at("q").adapted, 2);
  EXPECT_EQ(rows.at("q").how, "lora, rank 4");
  EXPECT_EQ(rows.at("q").trainable, 2 * 4 * (32 + 32));
  EXPECT_EQ(rows.at("up").adapted, 1);
  EXPECT_EQ(rows.at("up").modules, 2);
  EXPECT_EQ(rows.at("k").adapted, 0);
  EXPECT_EQ(rows.at("k").why, "not in lora_target");
  EXPECT_EQ(rows.at("norm1").how, "full copy");
  EXPECT_EQ(rows.at("norm1").trainable, 2 * 32);
  EXPECT_NE(rows.at("head").why.find("\"all\""), std::string::npos);
  std::int64_t total = 0;
  for (const auto& [name, row] : rows) total += row.trainable;
  EXPECT_EQ(total, model.list().trainable_numel());
}

TEST(Freeze, LayersAndModules) {
  DecoderSpec spec = llama_spec();
  spec.layers = 3;
  const auto trained = [&spec](const FreezeSpec& freeze) {
    WeightPolicy policy(true);
    policy.freeze = freeze;
    PolicyDecoder model(spec, policy);
    std::string names;
    for (const Parameter& p : model.list().all()) {
      if (p.trainable()) names += (names.empty() ? "" : " ") + p.module();
    }
    step(model, {pack(random_samples({9, 5}, 64))});
    return names;
  };
  EXPECT_EQ(trained({.trainable_layers = 1, .modules = {"q", "k"}}), "2.q 2.k");
  EXPECT_EQ(
      trained({.trainable_layers = -2, .modules = {"norm1", "down"}, .extra_modules = {"head", "norm"}}),
      "0.norm1 0.down 1.norm1 1.down norm head");
  EXPECT_EQ(trained({.trainable_layers = 1}), "2.norm1 2.q 2.k 2.v 2.o 2.norm2 2.gate 2.up 2.down");
  WeightPolicy policy(true);
  policy.freeze = FreezeSpec{.modules = {"mlp"}};
  EXPECT_NE(error_of(policy).find("freeze_trainable_modules: the model has no \"mlp\"; there are norm1"),
            std::string::npos);
  policy.freeze = FreezeSpec{.extra_modules = {"q"}};
  EXPECT_NE(error_of(policy).find("freeze_extra_modules"), std::string::npos);
}

// The decoder with its base in a format beside one whose base holds the dequantised values.
TEST(Quantised, EqualsTheDequantisedBase) {
  for (const QuantFormat format : {QuantFormat::nf4, QuantFormat::int8}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(format == QuantFormat::nf4 ? "nf4" : "int8");
      WeightPolicy policy = lora(everything());
      policy.frozen_dtype = dtype;
      policy.format = [format](const std::string& name, ModuleKind) {
        return name.find("0.v.") == std::string::npos ? std::optional(format) : std::nullopt;
      };
      PolicyDecoder quantized(llama_spec(), policy, dtype);
      policy.format = nullptr;
      PolicyDecoder plain(llama_spec(), policy, dtype);
      for (std::size_t i = 0; i < plain.list().all().size(); ++i) {
        const Parameter &from = quantized.list().all()[i], &to = plain.list().all()[i];
        ASSERT_EQ(from.name, to.name);
        if (from.quantized()) {
          from.read_rows(quantized.context, 0, to.values());
          to.storage->changed(false);
        }
      }
      EXPECT_TRUE(quantized.list().find("0.q.weight")->quantized());
      EXPECT_TRUE(quantized.list().find("embedding.weight")->quantized());
      EXPECT_FALSE(quantized.list().find("norm.weight")->quantized());
      fill_adapter(quantized);
      fill_adapter(plain);
      const std::vector<Batch> batches = {pack(random_samples({40, 20}, 64))};
      const StepResult a = step(quantized, batches), b = step(plain, batches);
      EXPECT_EQ(a.losses, b.losses);
      EXPECT_EQ(a.gradients, b.gradients);
      EXPECT_LT(quantized.bytes(MemoryTag::weights), plain.bytes(MemoryTag::weights));
      const std::size_t scratch = quantized.bytes(MemoryTag::workspace);
      step(quantized, batches);
      EXPECT_EQ(quantized.bytes(MemoryTag::workspace), scratch) << "panels are given back";
    }
  }
}

TEST(Quantised, AnNf4BaseLearnsWithLora) {
  WeightPolicy policy = lora(everything());
  quantize_linears(policy, QuantFormat::nf4);
  PolicyDecoder model(llama_spec(), policy);
  const std::vector<Batch> batches = {pack(random_samples({40, 20}, 64))};
  const double before = step(model, batches).losses[0];
  for (int i = 0; i < 60; ++i) {
    step(model, batches);
    for (const Parameter& p : model.list().all()) {
      if (!p.trainable()) continue;
      for (std::int64_t r = 0; r < p.rows; ++r) {
        for (std::int64_t c = 0; c < p.cols; ++c)
          p.values().row<float>(r)[c] -= 0.1f * p.gradient().row<float>(r)[c];
      }
      p.storage->changed(false);
    }
  }
  EXPECT_LT(step(model, batches).losses[0], 0.8 * before);
}

TEST(Quantised, BlocksAreKeptAsTheyAre) {
  Memory memory;
  Facts facts;
  Workspace workspace{memory};
  Context context{.memory = memory, .facts = facts, .kernel = {1, &workspace}};
  WeightPolicy policy(false);
  policy.format = [](const std::string& name, ModuleKind) {
    return std::optional(name == "a.weight" ? QuantFormat::q8_0 : QuantFormat::q4_0);
  };
  ParameterList list(memory, policy);
  list.add({{.name = "a.weight", .rows = 3, .cols = 64}, {.name = "b.weight", .rows = 2, .cols = 64}});
  Tensor values(memory, MemoryTag::data, DType::f32, 3, 64), back(memory, MemoryTag::data, DType::f32, 3, 64);
  Rng rng(1, "blocks");
  for (std::int64_t i = 0; i < 192; ++i)
    values.view().row<float>(0)[i] = static_cast<float>(rng.next_normal());
  std::vector<std::byte> blocks(static_cast<std::size_t>(3 * row_bytes(QuantFormat::q8_0, 64)));
  quantize_rows(context.kernel, QuantFormat::q8_0, values.view(), blocks.data());
  write_blocks(context, *list.find("a.weight"), QuantFormat::q8_0, blocks);
  auto& storage = dynamic_cast<QuantizedStorage&>(*list.find("a.weight")->storage);
  EXPECT_TRUE(std::ranges::equal(storage.band_bytes(0), blocks));
  EXPECT_EQ(storage.bytes(), blocks.size() + static_cast<std::size_t>(2 * row_bytes(QuantFormat::q4_0, 64)));
  list.find("a.weight")->read_rows(context, 0, back.view());
  for (std::int64_t i = 0; i < 192; ++i)
    EXPECT_NEAR(back.view().row<float>(0)[i], values.view().row<float>(0)[i], 0.02);
  WeightPolicy odd(false);
  odd.format = [](const std::string&, ModuleKind) { return std::optional(QuantFormat::q8_0); };
  ParameterList refused(memory, odd);
  EXPECT_THROW(refused.add({{.name = "w.weight", .rows = 1, .cols = 33}}), Error);
}

TEST(Parameters, OnlyTrainedPartsOfASharedStorageAreTrainable) {
  Memory memory;
  WeightPolicy policy(true);
  policy.freeze = FreezeSpec{.trainable_layers = 1, .modules = {"q"}, .num_layers = 1};
  ParameterList list(memory, policy);
  list.add({{.name = "0.q.weight", .rows = 2, .cols = 3}, {.name = "0.k.weight", .rows = 2, .cols = 3}});
  EXPECT_TRUE(list.all()[0].trainable());
  EXPECT_FALSE(list.all()[1].trainable());
  EXPECT_EQ(list.trainable_numel(), 6);
}

}  // namespace
}  // namespace lode::test
