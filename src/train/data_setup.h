// A recipe's data sets, prepared and packed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/log.h"
#include "data/encode_chat.h"
#include "data/rows.h"
#include "data/stream.h"
#include "text/tokenizer.h"
#include "train/recipe.h"

namespace lode {

struct EvalRows {
  std::string name;
  std::shared_ptr<const Rows> rows;
};

struct DataSets {
  std::shared_ptr<const Rows> train;     // null when streaming
  std::shared_ptr<StreamLoader> stream;  // null otherwise
  std::vector<EvalRows> eval;
};

// Where prepared data lives: LODE_CACHE, else lode below XDG_CACHE_HOME or ~/.cache.
std::string cache_folder();

TextEncoder text_encoder(const Tokenizer& tokenizer);
// For stage sft: the model's own chat template or the recipe's, and the recipe's masks.
std::shared_ptr<const ChatEncoder> make_chat_encoder(const Recipe& recipe, const Tokenizer& tokenizer,
                                                     Log& log);
std::vector<std::int32_t> token_byte_counts(const Tokenizer& tokenizer);

// Reads, tokenises (from the cache when it can), packs and reports. Throws as prepare_data and make_rows do.
DataSets prepare_data_sets(FileSystem& files, const Recipe& recipe, const Tokenizer& tokenizer, int threads,
                           Log& log);

// One list of paths as rows, with the recipe's reading and packing options.
std::shared_ptr<const Rows> prepare_rows(FileSystem& files, const Recipe& recipe,
                                         const std::vector<std::string>& paths, const Tokenizer& tokenizer,
                                         int threads, const std::string& name, Log& log);

}  // namespace lode
