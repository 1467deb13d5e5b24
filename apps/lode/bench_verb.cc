#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "core/fail.h"
#include "core/file.h"
#include "core/format.h"
#include "train/bench.h"
#include "train/bench_ab.h"
#include "train/bench_kernels.h"
#include "verbs.h"

namespace lode {
namespace {

struct BenchArguments {
  std::string model = "demo";
  int threads = 0;
  bool f32 = false, json = false, thorough = false, profile = false;
  std::string trace, frozen_compute = "auto";
  std::string recompute, offload_dir, offload_buffers = "two";
  std::int64_t recompute_interval = 2;
  TrainBenchOptions train;
  std::vector<std::string> recipe;
  AbOptions ab;
  KernelBenchOptions kernels;
  std::int64_t prompt_tokens = 64, new_tokens = 64;
};

void gemm(const BenchArguments& arguments) {
  Engine engine({.threads = arguments.threads});
  const auto peaks = bench_gemm(engine, arguments.thorough);
  Json json = Json::object();
  for (const GemmPeak& peak : peaks) {
    json[name_of(peak.dtype)] = peak.gflops;
    if (!arguments.json) {
      std::printf("%-5s %8.0f GFLOP/s on %d threads\n", std::string(name_of(peak.dtype)).c_str(), peak.gflops,
                  engine.threads());
    }
  }
  if (arguments.json) {
    std::printf("%s\n", Json::object({{"threads", engine.threads()}, {"gflops", json}}).dump(2).c_str());
  }
}

OffloadBuffers buffers_of(const std::string& name) {
  return name == "two" ? OffloadBuffers::two : name == "one" ? OffloadBuffers::one : OffloadBuffers::none;
}

void train(const BenchArguments& arguments) {
  Engine engine({.threads = arguments.threads, .bf16 = arguments.f32 ? std::optional(false) : std::nullopt});
  TrainBenchOptions options = arguments.train;
  using Recompute = ActivationPolicy::Recompute;
  const bool offloads = !arguments.offload_dir.empty();
  if (!arguments.recompute.empty() || offloads) {
    options.activations.recompute =
        arguments.recompute == "selective" ? Recompute::selective : Recompute::full;
    if (arguments.recompute == "every_k") options.activations.every = arguments.recompute_interval;
  }
  std::unique_ptr<Offload> offload;
  if (offloads) {
    offload = std::make_unique<Offload>(arguments.offload_dir, buffers_of(arguments.offload_buffers));
    options.activations.offload = offload.get();
  }
  options.events = !arguments.trace.empty();
  using Frozen = Recipe::FrozenCompute;
  options.frozen_compute = arguments.frozen_compute == "int8"   ? Frozen::int8
                           : arguments.frozen_compute == "bf16" ? Frozen::bf16
                                                                : Frozen::automatic;
  const TrainBench result = bench_train(engine, bench_config(arguments.model), options);
  if (options.events) write_file_atomically(real_files(), arguments.trace, chrome_trace(result.events));
  std::string out = arguments.json ? result.to_json().dump(2) + "\n" : result.text();
  if (arguments.profile && !arguments.json) out += result.profile_text();
  std::fputs(out.c_str(), stdout);
}

void kernels(const BenchArguments& arguments) {
  const KernelBench result = bench_kernels({.threads = arguments.threads}, arguments.kernels);
  std::fputs(arguments.json ? (result.to_json().dump(2) + "\n").c_str() : result.text().c_str(), stdout);
}

void generate(const BenchArguments& arguments) {
  Engine engine({.threads = arguments.threads});
  const GenerateBench result =
      bench_generate(engine, bench_config(arguments.model), arguments.prompt_tokens, arguments.new_tokens);
  std::fputs(arguments.json ? (result.to_json().dump(2) + "\n").c_str() : result.text().c_str(), stdout);
}

void ab(const BenchArguments& arguments) {
  const auto results = bench_ab(real_files(), "/proc/self/exe", arguments.recipe, arguments.ab);
  if (!arguments.json) return (void)std::fputs(ab_table(results).c_str(), stdout);
  Json json = Json::array();
  for (const AbResult& result : results) json.push_back(result.to_json());
  std::printf("%s\n", json.dump(2).c_str());
}

}  // namespace

void add_bench_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("bench", "Measure this machine and training on it");
  verb->require_subcommand(1);
  const auto arguments = std::make_shared<BenchArguments>();
  const std::string model_doc =
      format("a built-in shape ({}), a folder or a config.json", bench_model_names());
  const auto add = [&](const char* name, const char* doc) {
    CLI::App* command = verb->add_subcommand(name, doc);
    command->add_option("--threads", arguments->threads, "threads; 0: every core")
        ->check(CLI::Range(0, 4096));
    command->add_flag("--json", arguments->json, "print JSON");
    return command;
  };
  CLI::App* gemm_command = add("gemm", "The peak of matrix products, which utilisation is measured against");
  gemm_command->add_flag("--thorough", arguments->thorough, "also products of 4096^3");
  gemm_command->callback([arguments] { gemm(*arguments); });

  CLI::App* kernels_command =
      add("kernels", "Every op at the shapes of the benchmark models: time, floor and their ratio");
  arguments->kernels.models = {"gpt2-124m", "llama-124m", "smollm2-135m", "qwen2-0.5b"};
  kernels_command->add_option("--model", arguments->kernels.models, model_doc)->capture_default_str();
  kernels_command->add_option("--part", arguments->kernels.parts, "ops, attention or head; without it all")
      ->check(CLI::IsMember({"ops", "attention", "head"}));
  kernels_command->add_option("--tokens", arguments->kernels.tokens, "tokens of ops and head")
      ->capture_default_str();
  kernels_command->callback([arguments] { kernels(*arguments); });

  CLI::App* generate_command = add("generate", "Decoding of one sequence against the memory's bandwidth");
  generate_command->add_option("--model", arguments->model, model_doc)->capture_default_str();
  generate_command->add_option("--prompt", arguments->prompt_tokens, "tokens before")->capture_default_str();
  generate_command->add_option("--tokens", arguments->new_tokens, "tokens to make")->capture_default_str();
  generate_command->callback([arguments] { generate(*arguments); });

  CLI::App* train_command = add("train", "Whole training steps: tokens/s, MFU, time and floor by op");
  train_command->add_option("--model", arguments->model, model_doc)->capture_default_str();
  train_command->add_option("--tokens", arguments->train.tokens, "tokens of a step")->capture_default_str();
  train_command->add_option("--sample-length", arguments->train.sample_length, "tokens of each sample")
      ->capture_default_str();
  train_command->add_option("--steps", arguments->train.steps, "timed steps")->capture_default_str();
  train_command
      ->add_option("--recompute", arguments->recompute,
                   "recompute activations; steps that keep them take turns, for the ratio of their times")
      ->check(CLI::IsMember({"full", "selective", "every_k"}));
  train_command->add_option("--recompute-interval", arguments->recompute_interval, "the k of every_k")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  train_command->add_option("--offload-dir", arguments->offload_dir,
                            "offload the inputs of recomputed blocks, or with --recompute selective what "
                            "blocks save, to a file in this folder");
  train_command
      ->add_option("--offload-buffers", arguments->offload_buffers,
                   "two: read ahead; one; none: by the computing thread itself")
      ->check(CLI::IsMember({"two", "one", "none"}))
      ->capture_default_str();
  train_command
      ->add_option(
          "--lora", arguments->train.lora_rank,
          "adapters of this rank on every linear module of the layers, the rest frozen; 0: full training")
      ->check(CLI::Range(0, 4096));
  train_command
      ->add_option("--frozen-compute", arguments->frozen_compute,
                   "with --lora: arithmetic of products with frozen weights")
      ->check(CLI::IsMember({"auto", "bf16", "int8"}))
      ->capture_default_str();
  train_command->add_flag(
      "--profile", arguments->profile,
      "by op: time, floor (the larger of FLOPs over the peak and bytes over the bandwidth "
      "measured in this run), their ratio");
  train_command->add_option("--trace", arguments->trace,
                            "write every op of the timed steps to this file, for chrome://tracing");
  train_command->add_flag("--f32", arguments->f32, "f32 instead of bf16 mixed precision");
  train_command->callback([arguments] { train(*arguments); });

  CLI::App* ab_command =
      verb->add_subcommand("ab", "A recipe with each optimisation off and on in turn: speed, memory, loss");
  ab_command->add_flag("--json", arguments->json, "print JSON");
  ab_command->add_option("recipe", arguments->recipe, "a recipe's path, then key=value ...")->required();
  ab_command->add_option("--only", arguments->ab.only, "these alone (may be given several times)");
  ab_command->add_option("--steps", arguments->ab.steps, "steps of each run; the first is not timed")
      ->check(CLI::Range(2, 10000))
      ->capture_default_str();
  ab_command->add_option("--rounds", arguments->ab.rounds, "times that off and on take turns")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  ab_command->callback([arguments] { ab(*arguments); });
}

}  // namespace lode
