// Lodestone as a library: what the command line's verbs do, as functions. All throw lode::Error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lode/error.h"
#include "lode/export.h"

namespace lode {

struct TrainingResult {
  std::string model;  // folder of the final model, loadable by Hugging Face transformers
  std::int64_t step = 0;
  bool already_finished = false;  // a resumed run that had nothing left to do
};

// `lode train RECIPE key=value ...`; says what it does on standard error. SIGTERM, SIGINT and SIGHUP are
// handled while it runs: Error(preempted) after a checkpoint.
LODE_API TrainingResult train_recipe(const std::string& recipe_path,
                                     const std::vector<std::string>& overrides = {});

struct Evaluation {
  double loss = 0;  // mean over target tokens, nats
  double perplexity = 0;
  double bits_per_byte = 0;  // of the text
  double token_accuracy = 0;
  std::int64_t tokens = 0, bytes = 0;
};

// `lode eval MODEL FILES...` with rows of cutoff_len tokens (0: the model's context).
LODE_API Evaluation evaluate_files(const std::string& model, const std::vector<std::string>& data,
                                   std::int64_t cutoff_len = 0);

// `lode generate MODEL --prompt ...`: the new text. temperature 0 takes the most likely token each time.
LODE_API std::string generate_text(const std::string& model, const std::string& prompt,
                                   std::int64_t max_new_tokens, double temperature = 1,
                                   std::uint64_t seed = 0);

}  // namespace lode
