#include "train/bench.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "autograd/profile.h"
#include "core/fail.h"
#include "core/rng.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "observe/system.h"
#include "train/model_setup.h"
#include "train/step.h"

namespace lode {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct TimedStep {
  StepResult result;
  Clock::time_point begin;
  double seconds;
  std::uint64_t activations;  // peak bytes of the tag
};

struct StepTimer {
  Engine& engine;
  Decoder& decoder;
  ParameterUpdater& updater;
  const Step& step;

  TimedStep run(const ActivationPolicy& activations, Profile* profile) const {
    Context& context = engine.context();
    decoder.set_activation_policy(activations);
    engine.memory().reset_peak();
    context.profile = profile;
    TimedStep out;
    out.begin = Clock::now();
    out.result = compute_gradients(context, decoder, step);
    updater.step(context, 1e-4, clip_factor(out.result.grad_norm, 1.0), {});
    out.seconds = seconds_since(out.begin);
    context.profile = nullptr;
    out.activations = engine.memory().use().peak[static_cast<std::size_t>(MemoryTag::activations)];
    return out;
  }
};

std::vector<OpShare> shares(const Profile& profile, double total_seconds, std::int64_t steps,
                            double peak_gflops, double bandwidth) {
  std::vector<OpShare> list;
  double listed = 0;
  for (const auto& [op, cost] : profile.ops()) {
    OpShare share;
    share.op = op;
    share.seconds = cost.seconds / static_cast<double>(steps);
    share.share = cost.seconds / total_seconds;
    share.calls = static_cast<double>(cost.calls) / static_cast<double>(steps);
    share.gflops = cost.flops / cost.seconds / 1e9;
    share.peak_fraction = share.gflops / peak_gflops;
    share.gbytes = cost.bytes / cost.seconds / 1e9;
    share.floor_seconds = floor_seconds(cost, peak_gflops, bandwidth) / static_cast<double>(steps);
    share.floor_ratio = share.floor_seconds > 0 ? share.seconds / share.floor_seconds : 0;
    listed += cost.seconds;
    list.push_back(std::move(share));
  }
  OpShare rest;
  rest.op = "(outside of ops)";
  rest.seconds = (total_seconds - listed) / static_cast<double>(steps);
  rest.share = (total_seconds - listed) / total_seconds;
  list.push_back(std::move(rest));
  std::ranges::sort(list, [](const OpShare& a, const OpShare& b) { return a.seconds > b.seconds; });
  return list;
}

// Adapters as a fine-tuning run's defaults have them.
WeightPolicy policy_of(const TrainBenchOptions& options, const Context& context) {
  WeightPolicy policy(true);
  if (options.lora_rank == 0) return policy;
  policy.frozen_dtype = context.dtype;
  policy.adapter =
      AdapterSpec{.rank = options.lora_rank, .alpha = 2.0 * static_cast<double>(options.lora_rank)};
  choose_frozen_compute(context.facts, options.frozen_compute, context.dtype, policy);
  return policy;
}

}  // namespace

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

namespace {

// Of some passes over 2 or 3 large arrays: the best.
double best_bandwidth(double bytes, const std::function<void()>& pass) {
  double best = 0;
  for (int i = 0; i < 10; ++i) {
    const auto begin = Clock::now();
    pass();
    best = std::max(best, bytes / seconds_since(begin) / 1e9);
  }
  return best;
}

constexpr std::int64_t kStreamRows = 4096, kStreamCols = 8192;

}  // namespace

double measure_bandwidth(Engine& engine) {
  KernelContext& kernel = engine.context().kernel;
  const auto array = [&engine] {
    return Tensor(engine.memory(), MemoryTag::workspace, DType::f32, kStreamRows, kStreamCols);
  };
  const Tensor x = array(), y = array(), z = array();
  fill(kernel, x.view(), 1.0f);
  fill(kernel, y.view(), 2.0f);
  fill(kernel, z.view(), 0.0f);
  return best_bandwidth(3.0 * static_cast<double>(x.bytes()),
                        [&] { add_rows(DType::f32, kernel, x.view(), y.view(), z.view()); });
}

double measure_read_bandwidth(Engine& engine) {
  KernelContext& kernel = engine.context().kernel;
  const Tensor x(engine.memory(), MemoryTag::workspace, DType::f32, kStreamRows, kStreamCols);
  fill(kernel, x.view(), 1.0f);
  double sum = 0;
  const double best =
      best_bandwidth(static_cast<double>(x.bytes()), [&] { sum += sum_of_squares(kernel, x.view()); });
  LODE_ASSERT(sum > 0);
  return best;
}

Step bench_step(std::int64_t vocabulary, std::int64_t num_tokens, std::int64_t sample_length) {
  const auto tokens = static_cast<std::int32_t>(num_tokens);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens)), labels(ids.size(), kIgnoreLabel);
  std::vector<float> weight(ids.size(), 0.0f);
  Rng rng(1, "bench");
  for (auto& id : ids) id = static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(vocabulary)));
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> samples;
  for (std::int32_t begin = 0; begin < tokens;) {
    const std::int32_t length = std::min(tokens - begin, static_cast<std::int32_t>(sample_length));
    for (std::int32_t i = 0; i + 1 < length; ++i) {
      const auto at = static_cast<std::size_t>(begin) + static_cast<std::size_t>(i);
      labels[at] = ids[at + 1];
      weight[at] = 1;
    }
    samples.push_back(static_cast<std::int64_t>(lengths.size()));
    lengths.push_back(length);
    begin += length;
  }
  Step step;
  step.micro_batches.emplace_back(std::move(ids), std::move(labels), std::move(weight),
                                  Segments(lengths, samples, tokens));
  step.num_targets = step.micro_batches.front().num_targets();
  return step;
}

std::vector<GemmPeak> bench_gemm(Engine& engine, bool thorough) {
  std::vector<GemmPeak> peaks;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    peaks.push_back({dtype, measure_matmul_peak(engine.context().kernel, engine.memory(), dtype, thorough)});
  }
  return peaks;
}

TrainBench bench_train(Engine& engine, const ModelConfig& config, const TrainBenchOptions& options) {
  if (options.tokens < 2 || options.sample_length < 2 || options.steps < 1 || options.tokens > (1 << 20)) {
    fail(ErrorKind::usage, "bench train: tokens and sample length are from 2 to {}, steps from 1", 1 << 20);
  }
  Context& context = engine.context();
  report_model_facts(engine.facts(), config.spec, true);
  Decoder decoder(context, config.spec, config.names, policy_of(options, context));
  decoder.initialise(context, 1);
  decoder.parameters().allocate_gradients();
  ParameterUpdater updater(context, decoder.parameters(), make_adamw({}));
  const Step step = bench_step(config.spec.vocab_size, options.tokens, options.sample_length);
  TrainBench out;
  out.parameters = decoder.parameters().numel();
  out.trainable = decoder.parameters().trainable_numel();
  out.tokens = options.tokens;
  Profile profile(options.events);
  context.training = true;
  StepTimer timer{engine, decoder, updater, step};
  std::vector<double> seconds, keep_seconds, peaks;
  double total = 0;
  const bool compares = options.activations.recompute != ActivationPolicy::Recompute::none;
  if (compares) out.keep.emplace();
  for (std::int64_t i = 0; i <= options.steps; ++i) {
    // The peak is measured between the steps: the machine's speed drifts, and they are compared with each
    // other.
    peaks.push_back(measure_matmul_peak(context.kernel, context.memory, context.dtype, i == 0));
    if (compares) {
      const TimedStep kept = timer.run({}, nullptr);
      out.keep->keep_activations = kept.activations;
      if (i > 0) keep_seconds.push_back(kept.seconds);
    }
    const TimedStep timed = timer.run(options.activations, i == 0 ? nullptr : &profile);
    out.step_flops = timed.result.flops;
    out.losses.push_back(timed.result.loss_sum / static_cast<double>(timed.result.num_targets));
    if (compares) {
      out.keep->activations = timed.activations;
      out.keep->recomputed_flops = timed.result.recomputed_flops;
    }
    if (i == 0) continue;
    profile.add_span(format("step {}", i), timed.begin, timed.seconds);
    seconds.push_back(timed.seconds);
    total += timed.seconds;
  }
  out.step_seconds = median(seconds);
  if (compares) out.keep->slow_down = out.step_seconds / median(keep_seconds);
  if (options.activations.offload != nullptr) out.offload = options.activations.offload->counts();
  out.peak_gflops = *std::ranges::max_element(peaks);
  out.tokens_per_second = static_cast<double>(options.tokens) / out.step_seconds;
  out.mfu = out.step_flops / out.step_seconds / (out.peak_gflops * 1e9);
  out.peak_memory = process_use().peak_resident;  // before the arrays of the next line
  out.bandwidth = measure_bandwidth(engine);
  out.profile = shares(profile, total, options.steps, out.peak_gflops, out.bandwidth);
  out.events = profile.events();
  const auto squares = static_cast<double>(options.sample_length);
  out.formula = format(
      "MFU = {:.1f} GFLOP a step / {:.1f} ms / {:.0f} GFLOP/s = {:.1f} %; FLOPs = 6 x (weights in products, "
      "head included; 4 x frozen ones) x tokens + 3 x 2 x layers x heads x head size x sum of squared sample "
      "lengths (causal: half of the "
      "square); "
      "weights read by look-up and recomputation are not counted; samples of {:.0f} tokens",
      out.step_flops / 1e9, out.step_seconds * 1e3, out.peak_gflops, out.mfu * 100, squares);
  for (const Fact& fact : engine.facts().all()) out.facts.emplace_back(fact.name, fact.chosen);
  return out;
}

Json TrainBench::to_json() const {
  Json json = Json::object({{"parameters", parameters},
                            {"trainable", trainable},
                            {"tokens", tokens},
                            {"step_seconds", step_seconds},
                            {"tokens_per_second", tokens_per_second},
                            {"step_flops", step_flops},
                            {"peak_gflops", peak_gflops},
                            {"mfu", mfu},
                            {"formula", formula},
                            {"bandwidth_gbytes", bandwidth},
                            {"peak_memory_bytes", peak_memory},
                            {"losses", Json::Array(losses.begin(), losses.end())}});
  Json ops = Json::array();
  for (const OpShare& op : profile) {
    ops.push_back(Json::object({{"op", op.op},
                                {"seconds", op.seconds},
                                {"share", op.share},
                                {"floor_seconds", op.floor_seconds},
                                {"floor_ratio", op.floor_ratio},
                                {"calls", op.calls},
                                {"gflops", op.gflops},
                                {"peak_fraction", op.peak_fraction},
                                {"gbytes_per_second", op.gbytes},
                                {"bandwidth_fraction", bandwidth > 0 ? op.gbytes / bandwidth : 0}}));
  }
  json["profile"] = std::move(ops);
  Json chosen = Json::object();
  for (const auto& [name, value] : facts) chosen[name] = value;
  json["chosen"] = std::move(chosen);
  if (keep) {
    json["against_keep"] = Json::object({{"slow_down", keep->slow_down},
                                         {"activation_bytes", keep->activations},
                                         {"keep_activation_bytes", keep->keep_activations},
                                         {"recomputed_flops", keep->recomputed_flops},
                                         {"offload_stalls", offload.stalls},
                                         {"offload_stalled_seconds", offload.time_stalled}});
  }
  return json;
}

std::string TrainBench::text() const {
  std::string out = format(
      "{:.1f}M parameters, {:.1f}M trained, {} tokens a step: {:.1f} ms (median), {:.0f} tokens/s, peak "
      "memory {}\n{}\n",
      static_cast<double>(parameters) / 1e6, static_cast<double>(trainable) / 1e6, tokens, step_seconds * 1e3,
      tokens_per_second, format_bytes(peak_memory), formula);
  if (keep) {
    out += format(
        "against keep, in turns: {:.3f}x its time, activations {} against {}, {:.1f} GFLOP recomputed a "
        "step\n",
        keep->slow_down, format_bytes(keep->activations), format_bytes(keep->keep_activations),
        keep->recomputed_flops / 1e9);
  }
  if (offload.written > 0) {
    out += format("offload: {} written, {} read, {} stalls of {:.1f} ms together\n",
                  format_bytes(offload.bytes_written), format_bytes(offload.bytes_read), offload.stalls,
                  offload.time_stalled * 1e3);
  }
  for (const auto& [name, value] : facts) out += format("{}: {}; ", name, value);
  return out + '\n';
}

std::string TrainBench::profile_text() const {
  std::string out = format("peak of products {:.0f} GFLOP/s, stream {:.1f} GB/s\n", peak_gflops, bandwidth);
  out += format("{:<20}{:>9}{:>9}{:>7}{:>8}{:>8}{:>9}{:>7}{:>8}{:>8}\n", "op", "ms/step", "floor", "ratio",
                "share", "calls", "GFLOP/s", "peak", "GB/s", "stream");
  for (const OpShare& op : profile) {
    out += format("{:<20}{:>9.2f}", op.op, op.seconds * 1e3);
    out += op.floor_seconds > 0 ? format("{:>9.2f}{:>7.2f}", op.floor_seconds * 1e3, op.floor_ratio)
                                : format("{:>16}", "");
    out += format("{:>7.1f}%{:>8.1f}", op.share * 100, op.calls);
    out +=
        op.gflops > 0 ? format("{:>9.0f}{:>6.0f}%", op.gflops, op.peak_fraction * 100) : format("{:>16}", "");
    out += op.gbytes > 0 ? format("{:>8.1f}{:>7.0f}%", op.gbytes, op.gbytes / bandwidth * 100) : "";
    out += '\n';
  }
  return out;
}

}  // namespace lode
