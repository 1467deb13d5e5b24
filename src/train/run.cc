#include "lode/run.h"

#include "infer/generate.h"
#include "train/data_setup.h"
#include "train/evaluate.h"
#include "train/trainer.h"

namespace lode {

TrainingResult train_recipe(const std::string& recipe_path, const std::vector<std::string>& overrides) {
  Log log;
  std::vector<std::string> words{"lode", "train", recipe_path};
  words.insert(words.end(), overrides.begin(), overrides.end());
  const Recipe recipe = load_recipe(real_files(), recipe_path, overrides);
  const TrainOutcome outcome = train(real_files(), recipe, words, log);
  return {outcome.result, outcome.step, outcome.already_finished};
}

Evaluation evaluate_files(const std::string& model_path, const std::vector<std::string>& data,
                          std::int64_t cutoff_len) {
  Engine engine({});
  Log log(false);
  Model model = load_model(real_files(), engine, model_path);
  Recipe recipe;
  recipe.packing_strategy = Recipe::Packing::blocks;
  recipe.cutoff_len = cutoff_len > 0 ? cutoff_len : model.decoder->spec().max_positions;
  const auto rows = prepare_rows(real_files(), recipe, data, model.tokenizer, engine.threads(), "eval", log);
  const EvalResult result =
      evaluate(engine.context(), *model.decoder, rows, recipe.per_device_eval_batch_size * recipe.cutoff_len);
  return {result.loss,           result.perplexity, result.bits_per_byte,
          result.token_accuracy, result.tokens,     result.bytes};
}

std::string generate_text(const std::string& model_path, const std::string& prompt,
                          std::int64_t max_new_tokens, double temperature, std::uint64_t seed) {
  Engine engine({});
  Model model = load_model(real_files(), engine, model_path);
  GenerateOptions options;
  options.sampling.temperature = temperature;
  options.sampling.seed = seed;
  options.max_new_tokens = max_new_tokens;
  return generate(engine.context(), *model.decoder, model.tokenizer, prompt, options).text;
}

}  // namespace lode
