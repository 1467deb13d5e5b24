#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/fail.h"
#include "core/file.h"
#include "infer/chat.h"
#include "train/chat_setup.h"
#include "train/model_setup.h"
#include "verbs.h"

namespace lode {
namespace {

struct GenerateArguments {
  std::string model, adapter, prompt;
  std::optional<std::string> chat;  // "": a conversation on standard input
  std::string system, chat_template;
  std::optional<bool> thinking;
  GenerateOptions options;
  int threads = 0;
  bool json = false, f32 = false;
};

void print_json(const std::string& prompt, const Generated& out) {
  const Json json = Json::object({{"prompt", prompt},
                                  {"text", out.text},
                                  {"tokens", static_cast<std::int64_t>(out.tokens.size())},
                                  {"prompt_tokens", out.prompt_tokens},
                                  {"stopped_by", out.stopped_by},
                                  {"time_prompt", out.time_prompt},
                                  {"time_tokens", out.time_tokens}});
  std::printf("%s\n", json.dump(2).c_str());
}

void print_figures(const Generated& out) {
  const auto tokens = static_cast<double>(out.tokens.size());
  std::printf("\n");
  std::fprintf(stderr, "%lld tokens, %.1f tokens/s, stopped by %s\n",
               static_cast<long long>(out.tokens.size()),
               out.time_tokens > 0 ? tokens / out.time_tokens : 0.0, out.stopped_by.c_str());
}

void write_text(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void converse(const GenerateArguments& arguments, Engine& engine, Model& model) {
  Log log;
  const ResolvedTemplate resolved = resolve_chat_template(model.tokenizer, arguments.chat_template, log);
  ChatOptions options{arguments.options, arguments.system, template_variables(arguments.thinking)};
  options.generate.stop_ids = answer_ends(resolved.chat_template, model.tokenizer);
  ChatSession session(engine.context(), *model.decoder, model.tokenizer, resolved.chat_template, options);
  const auto answer = [&](const std::string& text) {
    const Generated out = arguments.json
                              ? session.answer(text)
                              : session.answer(text, [](std::string_view part) { write_text(part); });
    arguments.json ? print_json(text, out) : print_figures(out);
  };
  const std::string& text = arguments.chat->empty() ? arguments.prompt : *arguments.chat;
  if (!text.empty()) return answer(text);
  std::fprintf(stderr, "one message a line; an empty line or the end of the input ends the conversation\n> ");
  for (std::string line; std::getline(std::cin, line) && !line.empty();) {
    answer(line);
    std::fprintf(stderr, "> ");
  }
}

void run(const GenerateArguments& arguments) {
  check_sampling(arguments.options.sampling);
  if (std::ranges::find(arguments.options.stop, "") != arguments.options.stop.end()) {
    fail(ErrorKind::usage, "--stop: expected the text that ends the generation, found no text");
  }
  if (!arguments.chat &&
      (!arguments.system.empty() || !arguments.chat_template.empty() || arguments.thinking)) {
    fail(ErrorKind::usage, "--system, --template and --thinking belong to --chat");
  }
  Engine engine({.threads = arguments.threads, .bf16 = arguments.f32 ? std::optional(false) : std::nullopt});
  Model model = load_model(real_files(), engine, arguments.model, arguments.adapter);
  if (arguments.chat) return converse(arguments, engine, model);
  std::function<void(std::string_view)> show;
  if (!arguments.json) {
    // The prompt is shown with the first text: a prompt that is refused prints nothing.
    show = [prompt = arguments.prompt](std::string_view text) mutable {
      std::fputs(std::exchange(prompt, {}).c_str(), stdout);
      write_text(text);
    };
  }
  const Generated out =
      generate(engine.context(), *model.decoder, model.tokenizer, arguments.prompt, arguments.options, show);
  arguments.json ? print_json(arguments.prompt, out) : print_figures(out);
}

}  // namespace

void add_generate_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("generate", "Continue a prompt with a model");
  const auto arguments = std::make_shared<GenerateArguments>();
  auto& sampling = arguments->options.sampling;
  verb->add_option("model", arguments->model,
                   "a model folder, a GGUF file, a checkpoint or an adapter's folder")
      ->required();
  verb->add_option("--adapter", arguments->adapter,
                   "an adapter on the model: a folder of PEFT's, or a GGUF file");
  verb->add_option(
          "--chat", arguments->chat,
          "talk through the model's chat template: answer this message, or each line of standard input")
      ->expected(0, 1);
  verb->add_option("--system", arguments->system, "with --chat: the system message");
  verb->add_option("--template", arguments->chat_template,
                   "with --chat, for a model that has no chat template");
  verb->add_option("--thinking", arguments->thinking,
                   "with --chat: enable_thinking of the template (true or false)");
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
