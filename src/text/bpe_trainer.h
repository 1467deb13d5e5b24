// Training of byte-level BPE vocabularies, merge for merge equal to the `tokenizers` package's BpeTrainer
// with initial_alphabet = ByteLevel.alphabet().
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace lode {

struct BpeTrainOptions {
  std::int64_t vocab_size = 32000;          // special tokens and the 256 bytes included
  std::string pre_tokenizer = "gpt2";       // gpt2, cl100k, llama3, qwen2
  std::vector<std::string> special_tokens;  // ids from 0 in this order
  NamedTokens named;                        // each must be one of special_tokens
  std::int64_t min_frequency = 0;           // pairs seen less often are not merged
  int threads = 1;
};

struct BpeTrainStats {
  std::int64_t documents = 0, bytes = 0;
  std::int64_t words = 0, distinct_words = 0;  // pre-tokens
  std::int64_t merges = 0;
  double count_seconds = 0;  // reading, splitting and counting
  double merge_seconds = 0;
};

// Puts the next document into its argument (whose storage may be reused) and returns true, or returns false
// at the end.
using DocumentSource = std::function<bool(std::string&)>;

// Text of special tokens inside documents is ordinary text. Bytes that are not UTF-8 count as U+FFFD.
// The vocabulary is smaller than asked when the text has no more pairs. Throws Error(usage) for options out
// of range.
Tokenizer train_bpe(const DocumentSource& next, const BpeTrainOptions& options,
                    BpeTrainStats* stats = nullptr);

// The names that BpeTrainOptions::pre_tokenizer takes.
std::vector<std::string_view> pre_tokenizer_names();

}  // namespace lode
