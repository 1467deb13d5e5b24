// A LoRA step with products of frozen weights in bf16 and in int8, in turns: the same model, adapters and
// tokens. Prints both times, their ratio and the losses of each step.
//   lode_bench_frozen MODEL [tokens] [sample length] [steps]
// MODEL: a shape that `lode bench train` knows, or a folder with config.json.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "core/file.h"
#include "core/format.h"
#include "core/rng.h"
#include "kernels/int8_matmul.h"
#include "optim/optimizer.h"
#include "train/bench.h"
#include "train/step.h"

using namespace lode;

namespace {

void print(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

Step random_step(std::int64_t vocabulary, std::int32_t tokens, std::int32_t sample_length) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens)), labels(ids.size(), kIgnoreLabel), lengths;
  std::vector<float> weight(ids.size(), 0.0f);
  std::vector<std::int64_t> samples;
  Rng rng(1, "bench");
  for (auto& id : ids) id = static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(vocabulary)));
  for (std::int32_t begin = 0; begin < tokens; begin += lengths.back()) {
    lengths.push_back(std::min(tokens - begin, sample_length));
    samples.push_back(static_cast<std::int64_t>(samples.size()));
    for (std::int32_t i = begin; i + 1 < begin + lengths.back(); ++i) {
      labels[static_cast<std::size_t>(i)] = ids[static_cast<std::size_t>(i) + 1];
      weight[static_cast<std::size_t>(i)] = 1;
    }
  }
  Step step;
  step.micro_batches.emplace_back(std::move(ids), std::move(labels), std::move(weight),
                                  Segments(lengths, samples, tokens));
  step.num_targets = step.micro_batches.front().num_targets();
  return step;
}

struct Run {
  Engine engine{{.threads = 0, .bf16 = std::nullopt}};
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<ParameterUpdater> updater;
  std::vector<double> seconds, losses;

  Run(const ModelConfig& config, bool int8) {
    Context& context = engine.context();
    WeightPolicy policy(true);
    policy.frozen_dtype = context.dtype;
    policy.adapter = AdapterSpec{.rank = 16, .alpha = 32};
    policy.int8_products = int8;
    decoder = std::make_unique<Decoder>(context, config.spec, config.names, std::move(policy));
    decoder->initialise(context, 1);
    decoder->parameters().allocate_gradients();
    updater = std::make_unique<ParameterUpdater>(context, decoder->parameters(), make_adamw({}));
    context.training = true;
  }
  void run(const Step& step) {
    const auto begin = std::chrono::steady_clock::now();
    const StepResult result = compute_gradients(engine.context(), *decoder, step);
    updater->step(engine.context(), 1e-3, clip_factor(result.grad_norm, 1.0), {});
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    losses.push_back(result.loss_sum / static_cast<double>(step.num_targets));
  }
  // Without the first step, which warms up.
  double median() const {
    std::vector<double> sorted(seconds.begin() + 1, seconds.end());
    std::ranges::sort(sorted);
    return sorted[sorted.size() / 2];
  }
  double best() const { return *std::min_element(seconds.begin() + 1, seconds.end()); }
};

}  // namespace

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "smollm2-135m";
  const auto number = [&](int i, std::int32_t otherwise) {
    return argc > i ? std::atoi(argv[i]) : otherwise;
  };
  const std::int32_t tokens = number(2, 2048), length = number(3, 512);
  const ModelConfig config = bench_config(model);
  const Step step = random_step(config.spec.vocab_size, tokens, length);
  Run floats(config, false), int8(config, true);
  for (int i = 0; i <= number(4, 3); ++i) {
    floats.run(step);
    int8.run(step);
    print(format("step {}: {:.1f} and {:.1f} ms, loss {:.4f} and {:.4f}", i + 1, floats.seconds.back() * 1e3,
                 int8.seconds.back() * 1e3, floats.losses.back(), int8.losses.back()));
  }
  print(format("{}: {} tokens in samples of {}; int8: {}", model, tokens, length, int8_matmul_path().chosen));
  print(format("bf16 {:.1f} ms, int8 {:.1f} ms (medians): {:.2f}x; shortest {:.1f} and {:.1f} ms: {:.2f}x",
               floats.median() * 1e3, int8.median() * 1e3, floats.median() / int8.median(),
               floats.best() * 1e3, int8.best() * 1e3, floats.best() / int8.best()));
}
