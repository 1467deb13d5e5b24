#include "train/activation_auto.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/fail.h"

namespace lode {
namespace {

using Recompute = ActivationPolicy::Recompute;

// One sample as long as the model allows, up to the stream's unit; all of it targets but its last token.
Batch rehearsal_batch(const DecoderSpec& spec) {
  constexpr auto kTokens = static_cast<std::size_t>(kTokenMultiple);
  const auto length = static_cast<std::int32_t>(std::min<std::int64_t>(kTokenMultiple, spec.max_positions));
  std::vector<std::int32_t> labels(kTokens, kIgnoreLabel);
  std::vector<float> weights(kTokens, 0.0f);
  for (std::size_t t = 0; t + 1 < static_cast<std::size_t>(length); ++t) {
    labels[t] = 0;
    weights[t] = 1;
  }
  const std::int32_t lengths[] = {length};
  const std::int64_t samples[] = {0};
  return Batch(std::vector<std::int32_t>(kTokens, 0), std::move(labels), std::move(weights),
               Segments(lengths, samples, kTokenMultiple));
}

class Fitting {
 public:
  Fitting(Context& context, Decoder& decoder, std::int64_t tokens, std::uint64_t budget)
      : context_(context), decoder_(decoder), tokens_(tokens), budget_(budget) {}

  bool fits(const std::string& name, const ActivationPolicy& policy) {
    result.policy = policy;
    last_ = rehearse_activations(context_, decoder_, policy, tokens_);
    result.measured += format("{}{} {}", result.measured.empty() ? "" : ", ", name, format_bytes(last_));
    return last_ <= budget_;
  }
  std::uint64_t last() const { return last_; }

  FittingPolicy result;

 private:
  Context& context_;
  Decoder& decoder_;
  std::int64_t tokens_;
  std::uint64_t budget_, last_ = 0;
};

}  // namespace

std::uint64_t rehearse_activations(Context& context, Decoder& decoder, const ActivationPolicy& policy,
                                   std::int64_t tokens) {
  const Batch batch = rehearsal_batch(decoder.spec());
  const ActivationPolicy before = decoder.activation_policy();
  decoder.set_activation_policy(policy);
  decoder.parameters().reset_gradients();
  context.memory.reset_peak();
  const bool was_training = std::exchange(context.training, true);
  {
    Tape tape;
    context.tape = &tape;
    decoder.loss(context, batch, 1.0f);
    tape.backward(context);
    context.tape = nullptr;
  }
  context.training = was_training;
  decoder.parameters().reset_gradients();
  decoder.set_activation_policy(before);
  const auto peak = context.memory.use().peak[static_cast<std::size_t>(MemoryTag::activations)];
  context.memory.reset_peak();
  const std::int64_t units = (tokens + kTokenMultiple - 1) / kTokenMultiple;
  return peak * static_cast<std::uint64_t>(units);
}

FittingPolicy fit_activations(Context& context, Decoder& decoder, std::int64_t tokens, std::uint64_t budget,
                              Offload& offload) {
  Fitting fitting(context, decoder, tokens, budget);
  if (fitting.fits("keep", {})) return fitting.result;
  const std::uint64_t kept = fitting.last();
  if (fitting.fits("selective", {.recompute = Recompute::selective})) return fitting.result;
  const ActivationPolicy full{.recompute = Recompute::full};
  if (fitting.fits("full", full)) {
    // As few blocks as will do: each saves about the same.
    const std::uint64_t all = fitting.last();
    const auto layers = static_cast<double>(decoder.spec().layers);
    const double needed = static_cast<double>(kept - budget) / static_cast<double>(kept - all) * layers;
    for (auto k = static_cast<std::int64_t>(layers / std::max(1.0, std::floor(needed))); k > 1; --k) {
      if (fitting.fits(format("one of {} blocks", k), {.recompute = Recompute::full, .every = k}))
        return fitting.result;
    }
    fitting.result.policy = full;
    return fitting.result;
  }
  if (fitting.fits("offload", {.recompute = Recompute::full, .offload = &offload})) return fitting.result;
  fail(ErrorKind::memory,
       "activation_memory: {} is too little for micro-batches of {} tokens, which need: {}. Lower "
       "per_device_train_batch_size or cutoff_len",
       format_bytes(budget), tokens, fitting.result.measured);
}

std::uint64_t parse_bytes(const std::string& text) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1},     {"B", 1},    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
      {"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string_view unit(end);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const auto& [name, size] : kUnits) {
    const double bytes = number * size;
    if (end != text.c_str() && unit == name && bytes >= 1 && bytes < 0x1p60)
      return static_cast<std::uint64_t>(bytes);
  }
  fail(ErrorKind::usage, "expected a number of bytes as 1.5GiB or 800MB, found \"{}\"", text);
}

}  // namespace lode
