#include "text/word_counter.h"

#include <algorithm>
#include <limits>

#include "core/fail.h"
#include "text/bpe_model.h"

namespace lode::text {

void WordCounter::add(std::string_view word, std::int64_t count) {
  add_hashed(word, WordCache::hash(word), count);
}

void WordCounter::add_all(const WordCounter& other) {
  for (std::size_t i = 0; i < other.size(); i++)
    add_hashed(other.word(i), other.words_[i].hash, other.count(i));
}

void WordCounter::add_hashed(std::string_view word, std::uint64_t hash, std::int64_t count) {
  total_ += count;
  if (words_.size() * 2 >= slots_.size()) grow();
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = hash & mask;
  for (; slots_[i] != 0; i = (i + 1) & mask) {
    Word& known = words_[slots_[i] - 1];
    if (known.hash == hash && std::string_view(bytes_).substr(known.at, known.size) == word) {
      known.count += count;
      return;
    }
  }
  LODE_ASSERT(words_.size() < std::numeric_limits<std::uint32_t>::max());
  words_.push_back({hash, bytes_.size(), word.size(), count});
  bytes_.append(word);
  slots_[i] = static_cast<std::uint32_t>(words_.size());
}

void WordCounter::grow() {
  slots_.assign(std::max<std::size_t>(1024, slots_.size() * 2), 0);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t w = 0; w < words_.size(); w++) {
    std::size_t i = words_[w].hash & mask;
    while (slots_[i] != 0) i = (i + 1) & mask;
    slots_[i] = static_cast<std::uint32_t>(w + 1);
  }
}

}  // namespace lode::text
