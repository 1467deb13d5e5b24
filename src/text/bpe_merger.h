// The merge loop of BPE training.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "text/bpe_model.h"
#include "text/word_counter.h"

namespace lode::text {

// Grows a vocabulary by merging the most frequent pair, the smaller pair of ids among equals. Follows the
// reference in what it does not do, too: a pair's count is not reset when it is merged, and a queue entry
// merges only at the words it was made for. Both show only after two merges gave the same token, and are
// needed for equal results.
class BpeMerger {
 public:
  // `tokens`: special tokens and the byte alphabet, by id, distinct.
  BpeMerger(std::vector<std::string> tokens, const WordCounter& words);

  void run(std::size_t vocab_size, std::int64_t min_frequency);

  const std::vector<std::string>& tokens() const { return tokens_; }
  // In the order of their ranks. A pair merged twice has its later rank.
  std::vector<std::pair<std::int32_t, std::int32_t>> merges() const;

 private:
  using PairKey = std::uint64_t;  // left id, right id
  struct PairInfo {
    PairKey key;
    std::int64_t count = 0;
    std::vector<std::uint32_t> words;  // where it newly appeared; moved into the queue
  };
  struct Entry {
    std::uint64_t count;
    PairKey key;
    std::uint32_t pair;  // index of its PairInfo
    std::vector<std::uint32_t> words;
  };
  struct Word {
    std::size_t at;  // in symbols_
    std::uint32_t size;
    std::int64_t count;
  };

  static PairKey key(std::int32_t left, std::int32_t right) {
    return static_cast<PairKey>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  std::uint32_t pair_index(PairKey key);
  void grow();
  void add_words(const WordCounter& words);
  void count_pairs();
  void change(std::int32_t left, std::int32_t right, std::int64_t count, std::uint32_t word);
  void merge_word(std::uint32_t word, std::int32_t left, std::int32_t right, std::int32_t merged);
  void queue_changed();
  void push(Entry entry);
  std::int32_t token_of(std::int32_t left, std::int32_t right);

  std::vector<std::string> tokens_;
  StringToId ids_;
  std::vector<std::int32_t> symbols_;
  std::vector<Word> words_;
  std::vector<std::uint32_t> slots_;  // index of a pair + 1; 0: free
  std::vector<PairInfo> pairs_;
  std::vector<std::uint32_t> changed_;  // pairs with new words
  std::vector<Entry> queue_;
  std::vector<PairKey> merges_;
};

}  // namespace lode::text
