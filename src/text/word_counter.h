// Counts of distinct pre-tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lode::text {

class WordCounter {
 public:
  void add(std::string_view word, std::int64_t count = 1);
  void add_all(const WordCounter& other);

  std::size_t size() const { return words_.size(); }
  std::string_view word(std::size_t i) const {
    return std::string_view(bytes_).substr(words_[i].at, words_[i].size);
  }
  std::int64_t count(std::size_t i) const { return words_[i].count; }
  std::int64_t total() const { return total_; }

 private:
  struct Word {
    std::uint64_t hash;
    std::size_t at, size;
    std::int64_t count;
  };
  void add_hashed(std::string_view word, std::uint64_t hash, std::int64_t count);
  void grow();
  std::vector<std::uint32_t> slots_;  // index of a word + 1; 0: free
  std::vector<Word> words_;
  std::string bytes_;
  std::int64_t total_ = 0;
};

}  // namespace lode::text
