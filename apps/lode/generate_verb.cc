#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

#include "core/fail.h"
#include "core/file.h"
#include "infer/generate.h"
#include "train/model_setup.h"
#include "verbs.h"

namespace lode {
namespace {

struct GenerateArguments {
  std::string model, prompt;
  GenerateOptions options;
  int threads = 0;
  bool json = false, f32 = false;
};

void run(const GenerateArguments& arguments) {
  check_sampling(arguments.options.sampling);
  if (std::ranges::find(arguments.options.stop, "") != arguments.options.stop.end()) {
    fail(ErrorKind::usage, "--stop: expected the text that ends the generation, found no text");
  }
  Engine engine({.threads = arguments.threads, .bf16 = arguments.f32 ? std::optional(false) : std::nullopt});
  Model model = load_model(real_files(), engine, arguments.model);
  std::function<void(std::string_view)> show;
  if (!arguments.json) {
    // The prompt is shown with the first text: a prompt that is refused prints nothing.
    show = [prompt = arguments.prompt](std::string_view text) mutable {
      std::fputs(std::exchange(prompt, {}).c_str(), stdout);
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    };
  }
  const Generated out =
      generate(engine.context(), *model.decoder, model.tokenizer, arguments.prompt, arguments.options, show);
  const auto tokens = static_cast<std::int64_t>(out.tokens.size());
  const double rate = out.time_tokens > 0 ? static_cast<double>(tokens) / out.time_tokens : 0;
  if (arguments.json) {
    const Json json = Json::object({{"prompt", arguments.prompt},
                                    {"text", out.text},
                                    {"tokens", tokens},
                                    {"prompt_tokens", out.prompt_tokens},
                                    {"stopped_by", out.stopped_by},
                                    {"time_prompt", out.time_prompt},
                                    {"time_tokens", out.time_tokens}});
    std::printf("%s\n", json.dump(2).c_str());
  } else {
    std::printf("\n");
    std::fprintf(stderr, "%lld tokens, %.1f tokens/s, stopped by %s\n", static_cast<long long>(tokens), rate,
                 out.stopped_by.c_str());
  }
}

}  // namespace

void add_generate_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("generate", "Continue a prompt with a model");
  const auto arguments = std::make_shared<GenerateArguments>();
  auto& sampling = arguments->options.sampling;
  verb->add_option("model", arguments->model, "a model folder or a checkpoint")->required();
  verb->add_option("--prompt,-p", arguments->prompt, "text to continue");
  verb->add_option("--max-new-tokens,-n", arguments->options.max_new_tokens, "most tokens to make")
      ->capture_default_str();
  verb->add_option("--temperature", sampling.temperature, "0: always the most likely token")
      ->capture_default_str();
  verb->add_option("--top-k", sampling.top_k, "only the k most likely tokens; 0: all")->capture_default_str();
  verb->add_option("--top-p", sampling.top_p, "only the smallest set with this probability")
      ->capture_default_str();
  verb->add_option("--repetition-penalty", sampling.repetition_penalty,
                   "above 1: tokens seen become less likely")
      ->capture_default_str();
  verb->add_option("--seed", sampling.seed, "of the sampling")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_option("--stop", arguments->options.stop,
                   "text that ends the generation; may be given several times");
  verb->add_option("--threads", arguments->threads, "threads; 0: every core")->check(CLI::Range(0, 4096));
  verb->add_flag("--f32", arguments->f32, "compute in f32");
  verb->add_flag("--json", arguments->json, "print JSON");
  verb->callback([arguments] { run(*arguments); });
}

}  // namespace lode
