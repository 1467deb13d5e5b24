#include "nn/decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "nn/tiny_decoder.h"

namespace lode::test {
namespace {

std::vector<DecoderSpec> all_kinds() {
  return {llama_spec(), gpt2_spec(), gemma_spec()};
}
std::vector<DecoderSpec> with_angles_by_length() {
  std::vector<DecoderSpec> specs = all_kinds();
  specs.push_back(by_length_spec(RotarySpec::Scaling::dynamic));
  specs.push_back(by_length_spec(RotarySpec::Scaling::longrope));
  return specs;
}

struct Gradients {
  std::vector<double> values;                                     // of all parameters
  std::map<std::pair<std::int64_t, std::int32_t>, float> losses;  // by sample id and position
};

// The gradients of one step over micro-batches, divided by all targets.
Gradients step_gradients(TinyDecoder& tiny, const std::vector<Batch>& batches) {
  std::int64_t targets = 0;
  for (const Batch& batch : batches) targets += batch.num_targets();
  tiny.decoder.parameters().reset_gradients();
  Gradients out;
  for (const Batch& batch : batches) {
    Tape tape;
    tiny.context.tape = &tape;
    const TokenLosses losses = tiny.decoder.loss(tiny.context, batch, 1.0f / static_cast<float>(targets));
    tape.backward(tiny.context);
    tiny.context.tape = nullptr;
    for (std::int32_t t = 0; t < batch.num_tokens(); ++t) {
      const auto at = static_cast<std::size_t>(t);
      if (batch.labels()[at] == kIgnoreLabel) continue;
      const Segment& segment =
          batch.segments().list()[static_cast<std::size_t>(batch.segments().segment_of()[at])];
      out.losses[{segment.sample, batch.segments().positions()[at]}] = losses.loss[at];
    }
  }
  for (const Parameter& p : tiny.decoder.parameters().all()) {
    const View g = p.gradient();
    for (std::int64_t r = 0; r < g.rows; ++r)
      out.values.insert(out.values.end(), g.row<float>(r), g.row<float>(r) + g.cols);
  }
  return out;
}

// |a - b| beside |a|.
double distance(const Gradients& a, const Gradients& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    difference += (a.values[i] - b.values[i]) * (a.values[i] - b.values[i]);
    norm += a.values[i] * a.values[i];
  }
  return std::sqrt(difference / norm);
}

double largest_loss_difference(const Gradients& a, const Gradients& b) {
  EXPECT_EQ(a.losses.size(), b.losses.size());
  double worst = 0;
  for (const auto& [place, loss] : a.losses) {
    worst = std::max(worst, static_cast<double>(std::abs(loss - b.losses.at(place)) / loss));
  }
  return worst;
}

TEST(Decoder, AnyPackingAndSplitGivesTheSameGradients) {
  for (const DecoderSpec& plain : with_angles_by_length()) {
    for (const float dropout : {0.0f, 0.2f}) {
      DecoderSpec spec = plain;
      spec.embedding_dropout = spec.residual_dropout = dropout;
      SCOPED_TRACE(format("{} heads for keys, dropout {}", spec.kv_heads, dropout));
      TinyDecoder tiny(spec);
      tiny.context.training = true;
      tiny.context.seed = 9;
      tiny.context.step = 4;
      const std::vector<Sample> s = random_samples({9, 2, 17, 30, 4, 45}, 64);
      std::vector<Batch> one_by_one;
      for (const Sample& sample : s) one_by_one.push_back(pack({sample}, 1));
      const Gradients base = step_gradients(tiny, one_by_one);
      const std::vector<std::vector<Batch>> splits = [&] {
        std::vector<std::vector<Batch>> list;
        list.push_back({pack(s)});
        list.push_back({pack({s[5], s[3], s[1], s[0], s[2], s[4]})});
        list.push_back({pack({s[2], s[0]}), pack({s[1], s[5], s[3], s[4]})});
        list.push_back({pack({s[4]}), pack({s[0], s[1]}), pack({s[5]}), pack({s[3], s[2]}, 1)});
        return list;
      }();
      for (std::size_t i = 0; i < splits.size(); ++i) {
        const Gradients other = step_gradients(tiny, splits[i]);
        EXPECT_LE(distance(base, other), 1e-6) << "split " << i;
        EXPECT_LE(largest_loss_difference(base, other), 1e-5) << "split " << i;
      }
      // The test can fail: another sample id is another mask, and one token less is another gradient.
      std::vector<Sample> changed = s;
      changed[0].tokens.pop_back();
      EXPECT_GT(distance(base, step_gradients(tiny, {pack(changed)})), 1e-3);
      changed = s;
      changed[0].id = 99;
      const double renamed = distance(base, step_gradients(tiny, {pack(changed)}));
      if (dropout > 0) {
        EXPECT_GT(renamed, 1e-3);
      } else {
        EXPECT_LE(renamed, 1e-6);
      }
    }
  }
}

TEST(Decoder, GradientsAreBitEqualFromRunToRun) {
  for (const DecoderSpec& spec : all_kinds()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      TinyDecoder first(spec, dtype, 2), second(spec, dtype, 2);
      const std::vector<Batch> batches = {pack(random_samples({9, 2, 17, 30, 4, 45}, 64))};
      const Gradients a = step_gradients(first, batches), again = step_gradients(first, batches);
      EXPECT_EQ(a.values, again.values);
      EXPECT_EQ(a.values, step_gradients(second, batches).values);
    }
  }
}

TEST(Decoder, MixedPrecisionIsNearF32) {
  for (const DecoderSpec& spec : all_kinds()) {
    TinyDecoder exact(spec, DType::f32), mixed(spec, DType::bf16);
    const std::vector<Batch> batches = {pack(random_samples({40, 60}, 64))};
    const Gradients a = step_gradients(exact, batches), b = step_gradients(mixed, batches);
    EXPECT_LE(distance(a, b), 0.033);
    EXPECT_GT(distance(a, b), 1e-5) << "bf16 was not used";
    EXPECT_LE(largest_loss_difference(a, b), 0.1);
  }
}

// The gradient of the loss along a direction, by differences of the loss in f32.
TEST(Decoder, GradientIsTheSlopeOfTheLoss) {
  for (const DecoderSpec& spec : all_kinds()) {
    TinyDecoder tiny(spec);
    const Batch batch = pack(random_samples({40, 60}, 64));
    const Gradients g = step_gradients(tiny, {batch});
    double squares = 0;
    for (const double value : g.values) squares += value * value;
    const auto loss_at = [&](double shift) {
      std::size_t i = 0;
      for (const Parameter& p : tiny.decoder.parameters().all()) {
        for (std::int64_t r = 0; r < p.rows; ++r) {
          for (std::int64_t c = 0; c < p.cols; ++c)
            p.values().row<float>(r)[c] += static_cast<float>(shift * g.values[i++]);
        }
      }
      return tiny.decoder.loss(tiny.context, batch, 0).sum / static_cast<double>(batch.num_targets());
    };
    const double step = 2e-3 / std::sqrt(squares);
    const double above = loss_at(step), below = loss_at(-2 * step);
    EXPECT_NEAR((above - below) / (2 * step) / squares, 1, 5e-3);
  }
}

TEST(Decoder, ReturnsItsActivations) {
  TinyDecoder tiny(llama_spec());
  const std::vector<Batch> batches = {pack(random_samples({40, 60}, 64))};
  const auto activations = [&] {
    return tiny.memory.use().current[static_cast<std::size_t>(MemoryTag::activations)];
  };
  const std::size_t before = activations();
  step_gradients(tiny, batches);
  EXPECT_EQ(activations(), before);
  {
    const Value hidden = tiny.decoder.forward(tiny.context, batches[0]);
    EXPECT_FALSE(hidden.wants_gradient());
    EXPECT_EQ(activations(), before + hidden.data.bytes()) << "without a tape only the result is kept";
  }
  EXPECT_EQ(activations(), before);
}

TEST(Decoder, ScopeIsEmptyAfterwards) {
  TinyDecoder tiny(gpt2_spec());
  step_gradients(tiny, {pack(random_samples({4}, 64))});
  EXPECT_EQ(tiny.context.scope, "");
}

TEST(Decoder, NonFiniteWeightsAreFoundWhereTheyAct) {
  TinyDecoder tiny(llama_spec());
  tiny.decoder.parameters().find("1.up.weight")->values().row<float>(0)[3] = INFINITY;
  NonFinite bad;
  tiny.context.search = &bad;
  const Batch batch = pack(random_samples({4}, 64));
  Tape tape;
  tiny.context.tape = &tape;
  tiny.decoder.loss(tiny.context, batch, 1);
  EXPECT_TRUE(bad.found);
  EXPECT_EQ(bad.where, "layers.1.mlp: linear");
  EXPECT_TRUE(bad.per_token);
  EXPECT_EQ(bad.row, 0);
  EXPECT_EQ(bad.col, 40) << "the first channel of up, behind those of gate";
}

void check_cache(const DecoderSpec& spec, DType dtype, double tolerance) {
  TinyDecoder tiny(spec, dtype, 2, false);
  const std::vector<Sample> sample = random_samples({23}, 64);
  const Value whole = tiny.decoder.forward(tiny.context, pack(sample, 1));
  KvCache cache(tiny.context, spec.layers, spec.kv_heads * spec.head_dim, 23);
  std::int64_t begin = 0;
  for (const std::int32_t count : {7, 1, 1, 5, 1, 1, 1, 1, 1, 1, 1, 1, 1}) {
    const std::int32_t first[] = {static_cast<std::int32_t>(begin)};
    const auto n = static_cast<std::size_t>(count);
    const auto from = sample[0].tokens.begin() + begin;
    const Batch batch({from, from + count}, std::vector<std::int32_t>(n, kIgnoreLabel), std::vector<float>(n),
                      Segments(std::span(&count, 1), std::vector<std::int64_t>{0}, count, first));
    const Value part = tiny.decoder.forward(tiny.context, batch, &cache);
    begin += count;
    EXPECT_EQ(cache.length(), begin);
    for (std::int64_t c = 0; c < spec.hidden; ++c) {
      const auto at = [&](const Value& value, std::int64_t row) {
        return dtype == DType::f32 ? value.data.view().row<float>(row)[c]
                                   : to_f32(value.data.view().row<bf16>(row)[c]);
      };
      ASSERT_NEAR(at(part, count - 1), at(whole, begin - 1), tolerance)
          << "position " << begin - 1 << " channel " << c;
    }
  }
}

TEST(Decoder, CachedForwardEqualsTheWhole) {
  for (const DecoderSpec& spec : all_kinds()) {
    check_cache(spec, DType::f32, 1e-5);
    check_cache(spec, DType::bf16, 0.06);
  }
}

Batch continuation(const std::vector<std::int32_t>& tokens, std::int32_t position) {
  const auto count = static_cast<std::int32_t>(tokens.size());
  return Batch(tokens, std::vector<std::int32_t>(tokens.size(), kIgnoreLabel),
               std::vector<float>(tokens.size()),
               Segments(std::span(&count, 1), std::vector<std::int64_t>{0}, count, std::span(&position, 1)));
}

// As long as the length stays within the rule's limit the cached sequence is the whole; beyond it keys in the
// cache keep the angles that they had.
TEST(Decoder, AnglesByLengthChangeForNewTokensOnly) {
  for (const auto scaling : {RotarySpec::Scaling::dynamic, RotarySpec::Scaling::longrope}) {
    const DecoderSpec spec = by_length_spec(scaling);
    TinyDecoder tiny(spec, DType::f32, 1, false);
    const std::vector<std::int32_t> tokens = random_samples({20}, 64)[0].tokens;
    KvCache cache(tiny.context, spec.layers, spec.kv_heads * spec.head_dim, 20);
    tiny.decoder.forward(tiny.context, continuation({tokens.begin(), tokens.begin() + 12}, 0), &cache);
    for (std::int32_t t = 12; t < 20; ++t) {
      const Value part =
          tiny.decoder.forward(tiny.context, continuation({tokens[static_cast<std::size_t>(t)]}, t), &cache);
      const Value whole =
          tiny.decoder.forward(tiny.context, continuation({tokens.begin(), tokens.begin() + t + 1}, 0));
      double difference = 0;
      for (std::int64_t c = 0; c < spec.hidden; ++c) {
        difference = std::max<double>(
            difference, std::abs(part.data.view().row<float>(0)[c] - whole.data.view().row<float>(t)[c]));
      }
      if (t < 16) {
        EXPECT_LE(difference, 1e-5) << t;
      } else {
        EXPECT_GT(difference, 1e-4) << t;
      }
    }
  }
}

TEST(Decoder, SamplesLongerThanLearnedPositionsAreRefused) {
  TinyDecoder tiny(gpt2_spec());
  const Batch batch = pack(random_samples({129}, 64), 1);
  EXPECT_THROW(tiny.decoder.forward(tiny.context, batch), Error);
}

TEST(Decoder, Flops) {
  const TinyDecoder llama(llama_spec());
  const Segments segments(std::vector<std::int32_t>{10, 4}, std::vector<std::int64_t>{0, 1}, 20);
  // Per layer q and o 32 x 32, k and v 16 x 32, three of 40 x 32; the head 64 x 32.
  const double weights = 2 * (2 * 1024 + 2 * 512 + 3 * 1280) + 2048;
  // Per layer and segment: scores and values, each half of 2 * length^2 * 32.
  const double attention = 2 * 2 * (100 + 16) * 32;
  EXPECT_EQ(llama.decoder.training_flops(segments, 14), 3 * (2 * weights * 14 + attention));
  // The head works for tokens with a target.
  EXPECT_EQ(llama.decoder.training_flops(segments, 4), 3 * (2 * weights * 14 - 2 * 2048.0 * 10 + attention));
  // Per token: 6 * weights + 6 * layers * length * width of the heads.
  EXPECT_EQ(llama.decoder.training_flops_per_token(100), 6 * weights + 6.0 * 2 * 100 * 32);
  // Frozen: no gradient of the weights.
  const TinyDecoder frozen(llama_spec(), DType::f32, 1, false);
  EXPECT_EQ(frozen.decoder.training_flops(segments, 14), 2 * 2 * weights * 14 + 3 * attention);
  EXPECT_EQ(frozen.decoder.full_training_flops_per_token(100), llama.decoder.training_flops_per_token(100));
  const TinyDecoder gpt2(gpt2_spec());
  EXPECT_EQ(gpt2.decoder.training_flops_per_token(100),
            6.0 * (2 * (4 * 1024 + 2 * 1280) + 2048) + 6.0 * 2 * 100 * 32);
  // Two of three layers see 6 keys of a sample of 10.
  const TinyDecoder gemma(gemma_spec());
  const Segments ten(std::vector<std::int32_t>{10}, std::vector<std::int64_t>{0}, 10);
  EXPECT_EQ(gemma.decoder.training_flops(ten, 10),
            3 * (2 * (3 * (2 * 1024 + 2 * 512 + 3 * 1280) + 2048) * 10.0 + 2 * (100 + 2 * (100 - 16)) * 32));
}

}  // namespace
}  // namespace lode::test
