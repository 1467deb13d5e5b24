#include <algorithm>
#include <chrono>

#include "core/fail.h"
#include "infer/generate.h"
#include "train/bench.h"
#include "train/bench_kernels.h"

namespace lode {
namespace {

// What a token reads: every matrix in products, the head included; not the table that rows are looked up in.
double bytes_of_weights(const Decoder& decoder) {
  double bytes = 0;
  for (const Parameter& parameter : decoder.parameters().all()) {
    const bool looked_up = parameter.kind == ModuleKind::positions ||
                           (parameter.kind == ModuleKind::embedding && !decoder.spec().tied_head);
    if (!looked_up) bytes += static_cast<double>(parameter.numel() * size_of(parameter.values().dtype));
  }
  return bytes;
}

}  // namespace

GenerateBench bench_generate(Engine& engine, const ModelConfig& config, std::int64_t prompt_tokens,
                             std::int64_t new_tokens) {
  if (prompt_tokens < 1 || new_tokens < 1 || prompt_tokens + new_tokens > config.spec.max_positions) {
    fail(ErrorKind::usage, "bench generate: a prompt of {} and {} new tokens do not fit the context of {}",
         prompt_tokens, new_tokens, config.spec.max_positions);
  }
  using Clock = std::chrono::steady_clock;
  Context& context = engine.context();
  WeightPolicy policy(false);
  policy.frozen_dtype = context.dtype;
  const DecoderSpec& spec = config.spec;
  Decoder decoder(context, spec, config.names, policy);
  decoder.initialise(context, 1);
  GenerateBench out;
  out.weight_bytes = bytes_of_weights(decoder);
  KvCache cache(context, spec.layers, spec.kv_heads * spec.head_dim, prompt_tokens + new_tokens);
  const std::vector<std::int32_t> prompt(static_cast<std::size_t>(prompt_tokens), 1);
  next_logits(context, decoder, cache, prompt);
  out.bandwidth = measure_read_bandwidth(engine);
  std::vector<double> seconds;
  for (std::int64_t i = 0; i < new_tokens; ++i) {
    const auto begin = Clock::now();
    next_logits(context, decoder, cache, std::span(prompt).first(1));
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  out.bandwidth = std::max(out.bandwidth, measure_read_bandwidth(engine));
  out.tokens_per_second = 1 / median(seconds);
  out.fraction = out.weight_bytes * out.tokens_per_second / (out.bandwidth * 1e9);
  return out;
}

Json GenerateBench::to_json() const {
  return Json::object({{"tokens_per_second", tokens_per_second},
                       {"weight_bytes", weight_bytes},
                       {"bandwidth_gbytes", bandwidth},
                       {"fraction", fraction}});
}

std::string GenerateBench::text() const {
  return format(
      "{:.1f} tokens/s (median), {} of weights a token: {:.1f} GB/s, {:.0f} % of the {:.1f} GB/s at "
      "which a large array is read\n",
      tokens_per_second, format_bytes(static_cast<std::uint64_t>(weight_bytes)),
      weight_bytes * tokens_per_second / 1e9, fraction * 100, bandwidth);
}

}  // namespace lode
