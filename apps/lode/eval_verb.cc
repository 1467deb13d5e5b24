#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "core/file.h"
#include "train/data_setup.h"
#include "train/evaluate.h"
#include "train/model_setup.h"
#include "verbs.h"

namespace lode {
namespace {

struct EvalArguments {
  std::string model, adapter;
  Recipe recipe;
  std::string packing = "blocks";
  bool json = false, f32 = false, chat = false;
};

void run(EvalArguments arguments) {
  Recipe& recipe = arguments.recipe;
  Engine engine({.threads = static_cast<int>(recipe.num_threads),
                 .bf16 = arguments.f32 ? std::optional(false) : std::nullopt});
  Log log;
  Model model = load_model(real_files(), engine, arguments.model, arguments.adapter);
  if (recipe.cutoff_len <= 0) recipe.cutoff_len = model.decoder->spec().max_positions;
  recipe.document_separator = unescape(recipe.document_separator);
  if (arguments.chat) recipe.stage = Recipe::Stage::sft;
  recipe.packing_strategy =
      arguments.packing == "blocks" && !arguments.chat ? Recipe::Packing::blocks : Recipe::Packing::best_fit;
  const auto rows =
      prepare_rows(real_files(), recipe, recipe.dataset, model.tokenizer, engine.threads(), "eval", log);
  const EvalResult result =
      evaluate(engine.context(), *model.decoder, rows, recipe.per_device_eval_batch_size * recipe.cutoff_len);
  const double rate = static_cast<double>(result.tokens) / result.seconds;
  if (arguments.json) {
    const Json json = Json::object({{"loss", result.loss},
                                    {"perplexity", result.perplexity},
                                    {"bits_per_byte", result.bits_per_byte},
                                    {"token_accuracy", result.token_accuracy},
                                    {"tokens", result.tokens},
                                    {"bytes", result.bytes},
                                    {"samples", result.samples},
                                    {"precision", name_of(engine.dtype())},
                                    {"time_seconds", result.seconds}});
    std::printf("%s\n", json.dump(2).c_str());
    return;
  }
  std::printf(
      "loss %.5f  perplexity %.4f  bits per byte %.5f  accuracy %.4f  (%lld tokens, %lld bytes, %.0f "
      "tokens/s, %s)\n",
      result.loss, result.perplexity, result.bits_per_byte, result.token_accuracy,
      static_cast<long long>(result.tokens), static_cast<long long>(result.bytes), rate,
      std::string(name_of(engine.dtype())).c_str());
}

}  // namespace

void add_eval_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("eval", "Loss, perplexity and bits per byte of a model on files");
  const auto arguments = std::make_shared<EvalArguments>();
  arguments->recipe.cutoff_len = 0;
  verb->add_option("model", arguments->model,
                   "a model folder, a GGUF file, a checkpoint or an adapter's folder")
      ->required();
  verb->add_option("data", arguments->recipe.dataset, "files, folders or globs")->required();
  verb->add_option("--adapter", arguments->adapter,
                   "an adapter on the model: a folder of PEFT's, or a GGUF file");
  verb->add_flag("--chat", arguments->chat, "the files hold chats or instructions: the loss of the answers");
  verb->add_option("--template", arguments->recipe.chat_template,
                   "with --chat, for a model that has no chat template");
  verb->add_option("--cutoff-len", arguments->recipe.cutoff_len, "tokens of a row; 0: the model's context")
      ->check(CLI::Range(0, 1 << 20));
  verb->add_option("--packing", arguments->packing,
                   "blocks: the stream cut into rows; best_fit: isolated documents")
      ->check(CLI::IsMember({"blocks", "best_fit"}))
      ->capture_default_str();
  verb->add_option("--batch-size", arguments->recipe.per_device_eval_batch_size,
                   "rows at a time; bounds memory only")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb->add_option("--separator", arguments->recipe.document_separator,
                   "text between two documents of a file; \\n is a line break");
  verb->add_option("--text-column", arguments->recipe.text_column, "of JSON records")->capture_default_str();
  verb->add_option("--threads", arguments->recipe.num_threads, "threads; 0: every core")
      ->check(CLI::Range(0, 4096));
  verb->add_flag("--f32", arguments->f32, "compute in f32");
  verb->add_flag("--json", arguments->json, "print JSON");
  verb->callback([arguments] { run(*arguments); });
}

}  // namespace lode
