#include "text/bpe_merger.h"

#include <algorithm>
#include <unordered_set>

#include "core/fail.h"
#include "text/unicode.h"

namespace lode::text {
namespace {

constexpr auto kLower = [](const auto& a, const auto& b) {
  return a.count != b.count ? a.count < b.count : a.key > b.key;
};

}  // namespace

BpeMerger::BpeMerger(std::vector<std::string> tokens, const WordCounter& words) : tokens_(std::move(tokens)) {
  for (std::size_t i = 0; i < tokens_.size(); i++) ids_.emplace(tokens_[i], static_cast<std::int32_t>(i));
  LODE_ASSERT(ids_.size() == tokens_.size());
  add_words(words);
  count_pairs();
}

void BpeMerger::add_words(const WordCounter& words) {
  std::int32_t byte_ids[256];
  for (int b = 0; b < 256; b++) {
    const char byte = static_cast<char>(b);
    byte_ids[b] = ids_.at(bytes_to_alphabet(std::string_view(&byte, 1)));
  }
  for (std::size_t i = 0; i < words.size(); i++) {
    const std::string_view bytes = words.word(i);
    words_.push_back({symbols_.size(), static_cast<std::uint32_t>(bytes.size()), words.count(i)});
    for (const char c : bytes) symbols_.push_back(byte_ids[static_cast<std::uint8_t>(c)]);
  }
}

std::uint32_t BpeMerger::pair_index(PairKey key) {
  if (pairs_.size() * 2 >= slots_.size()) grow();
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = (key * 0x9E3779B97F4A7C15u >> 24) & mask;
  for (; slots_[i] != 0; i = (i + 1) & mask) {
    if (pairs_[slots_[i] - 1].key == key) return slots_[i] - 1;
  }
  pairs_.push_back({key, 0, {}});
  slots_[i] = static_cast<std::uint32_t>(pairs_.size());
  return slots_[i] - 1;
}

void BpeMerger::grow() {
  slots_.assign(std::max<std::size_t>(1 << 14, slots_.size() * 2), 0);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t p = 0; p < pairs_.size(); p++) {
    std::size_t i = (pairs_[p].key * 0x9E3779B97F4A7C15u >> 24) & mask;
    while (slots_[i] != 0) i = (i + 1) & mask;
    slots_[i] = static_cast<std::uint32_t>(p + 1);
  }
}

void BpeMerger::count_pairs() {
  for (std::uint32_t w = 0; w < words_.size(); w++) {
    const std::int32_t* symbols = symbols_.data() + words_[w].at;
    for (std::uint32_t i = 0; i + 1 < words_[w].size; i++)
      change(symbols[i], symbols[i + 1], words_[w].count, w);
  }
  queue_changed();
}

void BpeMerger::change(std::int32_t left, std::int32_t right, std::int64_t count, std::uint32_t word) {
  const std::uint32_t index = pair_index(key(left, right));
  PairInfo& pair = pairs_[index];
  pair.count += count;
  if (count <= 0) return;
  if (pair.words.empty()) changed_.push_back(index);
  if (pair.words.empty() || pair.words.back() != word) pair.words.push_back(word);
}

void BpeMerger::queue_changed() {
  for (const std::uint32_t index : changed_) {
    PairInfo& pair = pairs_[index];
    std::vector<std::uint32_t> words = std::exchange(pair.words, {});
    if (pair.count > 0) push({static_cast<std::uint64_t>(pair.count), pair.key, index, std::move(words)});
  }
  changed_.clear();
}

void BpeMerger::push(Entry entry) {
  queue_.push_back(std::move(entry));
  std::ranges::push_heap(queue_, kLower);
}

void BpeMerger::merge_word(std::uint32_t index, std::int32_t left, std::int32_t right, std::int32_t merged) {
  Word& word = words_[index];
  std::int32_t* s = symbols_.data() + word.at;
  std::uint32_t write = 0, read = 0;
  while (read < word.size) {
    if (s[read] != left || read + 1 == word.size || s[read + 1] != right) {
      s[write++] = s[read++];
      continue;
    }
    if (write > 0) {
      change(s[write - 1], left, -word.count, index);
      change(s[write - 1], merged, word.count, index);
    }
    s[write++] = merged;
    read += 2;
    if (read < word.size) {
      change(right, s[read], -word.count, index);
      change(merged, s[read], word.count, index);
    }
  }
  word.size = write;
}

std::int32_t BpeMerger::token_of(std::int32_t left, std::int32_t right) {
  std::string token = tokens_[static_cast<std::size_t>(left)] + tokens_[static_cast<std::size_t>(right)];
  const auto [at, added] = ids_.emplace(token, static_cast<std::int32_t>(tokens_.size()));
  if (added) tokens_.push_back(std::move(token));
  return at->second;
}

void BpeMerger::run(std::size_t vocab_size, std::int64_t min_frequency) {
  while (tokens_.size() < vocab_size && !queue_.empty()) {
    std::ranges::pop_heap(queue_, kLower);
    Entry top = std::move(queue_.back());
    queue_.pop_back();
    const auto count = static_cast<std::uint64_t>(pairs_[top.pair].count);
    if (top.count != count) {
      top.count = count;
      push(std::move(top));
      continue;
    }
    if (count < 1 || count < static_cast<std::uint64_t>(min_frequency)) break;
    const auto left = static_cast<std::int32_t>(top.key >> 32);
    const auto right = static_cast<std::int32_t>(top.key & 0xFFFFFFFF);
    const std::int32_t merged = token_of(left, right);
    merges_.push_back(top.key);
    for (const std::uint32_t word : top.words) merge_word(word, left, right, merged);
    queue_changed();
  }
}

std::vector<std::pair<std::int32_t, std::int32_t>> BpeMerger::merges() const {
  std::vector<std::pair<std::int32_t, std::int32_t>> result;
  std::unordered_set<PairKey> seen;
  for (auto at = merges_.rbegin(); at != merges_.rend(); ++at) {
    if (!seen.insert(*at).second) continue;
    result.emplace_back(static_cast<std::int32_t>(*at >> 32), static_cast<std::int32_t>(*at & 0xFFFFFFFF));
  }
  std::ranges::reverse(result);
  return result;
}

}  // namespace lode::text
