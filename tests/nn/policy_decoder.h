// Tiny decoders under a policy, and one step of them: what tests of adapters and frozen bases share.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "nn/adapter.h"
#include "nn/tiny_decoder.h"

namespace lode::test {

struct PolicyDecoder {
  Memory memory;
  Facts facts;
  Workspace workspace{memory};
  Context context{.memory = memory, .facts = facts, .kernel = {1, &workspace}};
  Decoder decoder;

  PolicyDecoder(const DecoderSpec& spec, WeightPolicy policy, DType dtype = DType::f32)
      : decoder(context, spec, names_of(spec), std::move(policy)) {
    context.dtype = dtype;
    decoder.initialise(context, 3);
    decoder.parameters().allocate_gradients();
  }
  const ParameterList& list() const { return decoder.parameters(); }
  std::size_t bytes(MemoryTag tag) const { return memory.use().current[static_cast<std::size_t>(tag)]; }
};

inline WeightPolicy lora(AdapterSpec spec) {
  WeightPolicy policy(false);
  policy.adapter = std::move(spec);
  return policy;
}

// B is zero at the start; small values make the adapter act.
inline void fill_adapter(PolicyDecoder& model) {
  Rng rng(4, "adapter");
  for (const Parameter& p : model.list().all()) {
    if (p.role != ParameterRole::lora) continue;
    for (std::int64_t r = 0; r < p.rows; ++r) {
      for (std::int64_t c = 0; c < p.cols; ++c)
        p.values().row<float>(r)[c] = static_cast<float>(0.05 * rng.next_normal());
    }
    p.storage->changed(false);
  }
}

struct StepResult {
  std::vector<double> gradients, losses;
};

inline StepResult step(PolicyDecoder& model, const std::vector<Batch>& batches) {
  std::int64_t targets = 0;
  for (const Batch& batch : batches) targets += batch.num_targets();
  model.decoder.parameters().reset_gradients();
  StepResult out;
  double sum = 0;
  for (const Batch& batch : batches) {
    Tape tape;
    model.context.tape = &tape;
    sum += model.decoder.loss(model.context, batch, 1.0f / static_cast<float>(targets)).sum;
    tape.backward(model.context);
    model.context.tape = nullptr;
  }
  out.losses.push_back(sum / static_cast<double>(targets));
  for (const Parameter& p : model.list().all()) {
    if (!p.trainable()) continue;
    for (std::int64_t r = 0; r < p.rows; ++r)
      out.gradients.insert(out.gradients.end(), p.gradient().row<float>(r),
                           p.gradient().row<float>(r) + p.cols);
  }
  return out;
}

inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  EXPECT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += a[i] * a[i];
  }
  return std::sqrt(difference / norm);
}

inline AdapterSpec everything() {
  AdapterSpec spec;
  spec.rank = 4;
  spec.targets = {"all", "embedding", "head"};
  spec.additional_targets = {"norm1"};
  return spec;
}

inline std::vector<float> logits_of(PolicyDecoder& model, const Batch& batch) {
  const Value hidden = model.decoder.forward(model.context, batch);
  const Tensor logits = model.decoder.last_logits(model.context, hidden);
  const float* row = logits.view().row<float>(0);
  return {row, row + logits.cols()};
}

}  // namespace lode::test
