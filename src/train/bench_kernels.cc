#include "train/bench_kernels.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>

#include "core/fail.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "nn/init.h"
#include "nn/linear.h"
#include "ops/attention.h"
#include "ops/linear_cross_entropy.h"
#include "train/bench.h"

namespace lode {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(const std::function<void()>& body) {
  const auto begin = Clock::now();
  body();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Memory and context of one case, freed with it.
struct Bench {
  Memory memory;
  Facts facts;
  Workspace workspace{memory};
  Context context{.memory = memory, .facts = facts, .kernel = {1, &workspace}};

  explicit Bench(const Context& like) {
    context.kernel.threads = like.kernel.threads;
    context.dtype = like.dtype;
    context.training = true;
  }
  Tensor random(std::int64_t rows, std::int64_t cols) {
    Tensor values(memory, MemoryTag::workspace, DType::f32, rows, cols);
    fill_normal(context, values.view(), make_key(1, "bench"), 0.5f);
    if (context.dtype == DType::f32) return values;
    Tensor out = context.activation(rows, cols);
    convert(context.kernel, values.view(), out.view());
    return out;
  }
};

void finish(KernelFigure& figure, double peak_gflops, double bandwidth) {
  const OpCost cost{.seconds = figure.seconds, .calls = 1, .flops = figure.flops, .bytes = figure.bytes};
  figure.peak_gflops = peak_gflops;
  figure.floor_seconds = floor_seconds(cost, peak_gflops, bandwidth);
  figure.floor_ratio = figure.floor_seconds > 0 ? figure.seconds / figure.floor_seconds : 0;
  figure.peak_fraction = figure.flops / figure.seconds / (peak_gflops * 1e9);
  figure.stream_fraction = bandwidth > 0 ? figure.bytes / figure.seconds / (bandwidth * 1e9) : 0;
}

// "layers.3.attention" -> "attention", "layers.3" -> "layer": every layer has the same.
std::string place_of(const std::string& scope) {
  if (!scope.starts_with("layers.")) return scope.empty() ? "step" : scope;
  const auto dot = scope.find('.', 7);
  return dot == std::string::npos ? "layer" : scope.substr(dot + 1);
}

void add_ops(KernelBench& out, const EngineOptions& options, const std::string& model, std::int64_t tokens) {
  Engine engine(options);
  ModelConfig config = bench_config(model);
  constexpr std::int64_t kLayers = 2, kSteps = 3;
  config.spec.layers = std::min(config.spec.layers, kLayers);
  if (!config.spec.layer_specs.empty()) {
    config.spec.layer_specs.resize(static_cast<std::size_t>(config.spec.layers));
  }
  const TrainBench train = bench_train(
      engine, config, {.tokens = tokens, .sample_length = tokens, .steps = kSteps, .events = true});
  struct Key {
    std::string name;
    double flops;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, KernelFigure> figures;
  for (const Profile::Event& event : train.events) {
    if (event.span) continue;
    const Key key{format("{}: {}", place_of(event.scope), event.op), event.cost.flops};
    KernelFigure& figure = figures[key];
    figure.calls += 1;
    figure.seconds += event.cost.seconds / kSteps;
    figure.flops += event.cost.flops / kSteps;
    figure.bytes += event.cost.bytes / kSteps;
  }
  for (auto& [key, figure] : figures) {
    figure.part = "ops";
    figure.model = model;
    figure.calls = (figure.calls - 1) / kSteps;
    // Products of several sizes in one place are told apart by their work.
    figure.name = key.flops > 0 ? format("{}, {:.2f} GFLOP", key.name, key.flops / 1e9) : key.name;
    finish(figure, train.peak_gflops, train.bandwidth);
    out.figures.push_back(figure);
  }
  out.peak_gflops = std::max(out.peak_gflops, train.peak_gflops);
  out.bandwidth = std::max(out.bandwidth, train.bandwidth);
}

struct AttentionCase {
  std::int64_t tokens, width, head_dim, window;
};

KernelFigure measure_attention(const Context& like, const AttentionCase& c) {
  Bench bench(like);
  Context& context = bench.context;
  const std::int64_t heads = c.width / c.head_dim;
  const AttentionShape shape{.heads = heads,
                             .kv_heads = heads,
                             .head_dim = c.head_dim,
                             .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                             .window = c.window};
  const Step step = bench_step(1000, c.tokens, c.tokens);
  const Batch& batch = step.micro_batches.front();
  const Tensor qkv = bench.random(c.tokens, 3 * c.width), dout = bench.random(c.tokens, c.width);
  const auto run = [&] {
    Tape tape;
    context.tape = &tape;
    const Value out = attention(context, make_value(context, qkv, true), batch, shape);
    tape.add_gradient(context, out.gradient, dout);
    tape.backward(context);
  };
  run();
  std::vector<double> seconds;
  double total = 0;
  while (seconds.size() < 2 || (total < 0.5 && seconds.size() < 20)) {
    seconds.push_back(seconds_of(run));
    total += seconds.back();
  }
  KernelFigure figure;
  figure.part = "attention";
  figure.name = format("{} tokens, {} heads of {}{}", c.tokens, heads, c.head_dim,
                       c.window > 0 ? format(", window {}", c.window) : "");
  figure.seconds = median(seconds);
  figure.flops = 3 * attention_forward_flops(batch.segments(), shape);  // backward twice the forward
  return figure;
}

void add_attention(KernelBench& out, const EngineOptions& options) {
  Engine engine(options);
  const Context& context = engine.context();
  const auto measure_peak = [&] {
    return measure_matmul_peak(engine.context().kernel, engine.memory(), context.dtype, false);
  };
  double before = measure_peak();
  for (const std::int64_t tokens : {2048, 8192, 32768}) {
    const std::int64_t width = tokens > 8192 ? 256 : 768;  // minutes otherwise
    for (const std::int64_t head_dim : {64, 128}) {
      for (const std::int64_t window : {0, 1024}) {
        KernelFigure figure = measure_attention(context, {tokens, width, head_dim, window});
        const double after = measure_peak();
        finish(figure, std::max(before, after), out.bandwidth);
        out.peak_gflops = std::max(out.peak_gflops, figure.peak_gflops);
        before = after;
        out.figures.push_back(figure);
      }
    }
  }
}

KernelFigure measure_head(const Context& like, const DecoderSpec& spec, std::int64_t tokens, bool trained) {
  Bench bench(like);
  Context& context = bench.context;
  const std::int64_t vocabulary = spec.vocab_size, width = spec.hidden;
  WeightPolicy policy(trained);
  policy.frozen_dtype = context.dtype;
  ParameterList list(bench.memory, policy);
  Weight* weight = list.add({matrix_parameter("lm_head.weight", vocabulary, width, {}, ModuleKind::head)});
  initialise(context, list.all().front(), 1);
  if (trained) list.allocate_gradients();
  const WeightUse used(context, *weight, context.dtype);
  const Step step = bench_step(vocabulary, tokens, tokens);
  const Tensor x = bench.random(tokens, width);
  const auto run = [&] {
    list.reset_gradients();
    Tape tape;
    context.tape = &tape;
    linear_cross_entropy(context, make_value(context, x, true), *weight, step.micro_batches.front(),
                         1.0f / static_cast<float>(tokens));
    tape.backward(context);
  };
  const std::size_t before = bench.memory.use().total_current;
  bench.memory.reset_peak();
  run();
  KernelFigure figure;
  figure.scratch_bytes = bench.memory.use().total_peak - before - x.bytes();  // the gradient of x is a result

  const Tensor logits = bench.context.activation(tokens, vocabulary);
  const Tensor dx = bench.context.activation(tokens, width);
  fill(context.kernel, logits.view(), 0.0f);
  const auto plain = [&] {
    KernelContext& kernel = context.kernel;
    matmul(kernel, {.a = x.view(), .b = used.view(), .transpose_b = true, .c = logits.view()});
    matmul(kernel, {.a = logits.view(), .b = used.view(), .c = dx.view()});
    if (trained) {
      matmul(
          kernel,
          {.a = logits.view(), .b = x.view(), .transpose_a = true, .c = weight->gradient()->tensor().view()});
    }
  };
  plain();
  std::vector<double> seconds, plain_seconds;
  double total = 0;
  while (seconds.size() < 3 || (total < 2 && seconds.size() < 9)) {
    seconds.push_back(seconds_of(run));
    plain_seconds.push_back(seconds_of(plain));
    total += seconds.back();
  }
  figure.part = "head";
  figure.name = format("{} head, {} x {}", trained ? "trained" : "frozen", vocabulary, width);
  figure.seconds = median(seconds);
  figure.plain_seconds = median(plain_seconds);
  figure.flops =
      (trained ? 6.0 : 4.0) * static_cast<double>(tokens * vocabulary) * static_cast<double>(width);
  return figure;
}

void add_head(KernelBench& out, const EngineOptions& options, const std::string& model, std::int64_t tokens) {
  Engine engine(options);
  const ModelConfig config = bench_config(model);
  for (const bool trained : {false, true}) {
    KernelFigure figure = measure_head(engine.context(), config.spec, tokens, trained);
    figure.model = model;
    const double peak = measure_matmul_peak(engine.context().kernel, engine.memory(), engine.dtype(), false);
    finish(figure, peak, out.bandwidth);
    out.peak_gflops = std::max(out.peak_gflops, peak);
    out.figures.push_back(figure);
  }
}

}  // namespace

KernelBench bench_kernels(const EngineOptions& engine, const KernelBenchOptions& options) {
  if (options.tokens < 128 || options.tokens > (1 << 16)) {
    fail(ErrorKind::usage, "bench kernels: tokens are from 128 to {}", 1 << 16);
  }
  const auto wanted = [&](std::string_view part) {
    return options.parts.empty() || std::ranges::find(options.parts, part) != options.parts.end();
  };
  KernelBench out;
  {
    Engine first(engine);
    out.threads = first.threads();
    out.bandwidth = measure_bandwidth(first);
  }
  if (wanted("ops")) {
    for (const std::string& model : options.models) add_ops(out, engine, model, options.tokens);
  }
  if (wanted("attention")) add_attention(out, engine);
  if (wanted("head")) {
    for (const std::string& model : options.models) add_head(out, engine, model, options.tokens);
  }
  return out;
}

Json KernelBench::to_json() const {
  Json list = Json::array();
  for (const KernelFigure& f : figures) {
    Json figure = Json::object({{"part", f.part},
                                {"model", f.model},
                                {"name", f.name},
                                {"calls", f.calls},
                                {"seconds", f.seconds},
                                {"flops", f.flops},
                                {"bytes", f.bytes},
                                {"peak_gflops", f.peak_gflops},
                                {"floor_seconds", f.floor_seconds},
                                {"floor_ratio", f.floor_ratio},
                                {"peak_fraction", f.peak_fraction},
                                {"stream_fraction", f.stream_fraction}});
    if (f.plain_seconds > 0) {
      figure["plain_seconds"] = f.plain_seconds;
      figure["scratch_bytes"] = f.scratch_bytes;
    }
    list.push_back(std::move(figure));
  }
  return Json::object({{"threads", threads},
                       {"peak_gflops", peak_gflops},
                       {"bandwidth_gbytes", bandwidth},
                       {"figures", std::move(list)}});
}

std::string KernelBench::text() const {
  std::string out = format("peak of products {:.0f} GFLOP/s, stream {:.1f} GB/s, {} threads\n", peak_gflops,
                           bandwidth, threads);
  std::string heading;
  for (const KernelFigure& f : figures) {
    const std::string now = f.model.empty() ? f.part : format("{}, {}", f.part, f.model);
    if (now != heading) {
      out += format("\n{:<46}{:>7}{:>10}{:>10}{:>7}{:>7}{:>8}\n", now, "calls", "ms", "floor", "ratio",
                    "peak", "stream");
      heading = now;
    }
    out += format("{:<46}{:>7.1f}{:>10.3f}", f.name, f.calls, f.seconds * 1e3);
    out += f.floor_seconds > 0 ? format("{:>10.3f}{:>7.2f}", f.floor_seconds * 1e3, f.floor_ratio)
                               : format("{:>17}", "");
    out += f.flops > 0 ? format("{:>6.0f}%", f.peak_fraction * 100) : format("{:>7}", "");
    out += f.bytes > 0 ? format("{:>7.0f}%", f.stream_fraction * 100) : "";
    if (f.plain_seconds > 0) {
      out += format("  {:.2f} of the plain products, scratch {}", f.seconds / f.plain_seconds,
                    format_bytes(f.scratch_bytes));
    }
    out += '\n';
  }
  return out;
}

}  // namespace lode
