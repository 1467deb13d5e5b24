#include "text/bpe_model.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <limits>

#include "core/fail.h"

namespace lode::text {
namespace {

constexpr std::size_t kShortWord = 32;       // symbols; up to here rescanning beats a heap
constexpr std::size_t kMaxCachedWord = 128;  // bytes
constexpr std::size_t kMaxCacheEntries = 1 << 16;

}  // namespace

void push_symbol(std::vector<BpeScratch::Symbol>& symbols, std::int32_t id) {
  const auto i = static_cast<std::int32_t>(symbols.size());
  symbols.push_back({id, i - 1, i + 1});
}

void MergeTable::reserve(std::size_t merges) {
  std::size_t size = 16;
  while (size < merges * 2) size *= 2;
  slots_.assign(size, {});
  mask_ = size - 1;
}

void MergeTable::set(std::int32_t left, std::int32_t right, std::uint32_t rank, std::int32_t id) {
  const std::uint64_t pair = key(left, right);
  std::size_t i = slot(pair);
  while (slots_[i].pair != kEmpty && slots_[i].pair != pair) i = (i + 1) & mask_;
  slots_[i] = {pair, rank, id};
}

std::uint64_t WordCache::hash(std::string_view word) {
  return XXH3_64bits(word.data(), word.size());
}

bool WordCache::find(std::string_view word, std::uint64_t hash, std::vector<std::int32_t>& out) const {
  if (entries_.empty()) return false;
  const std::size_t mask = entries_.size() - 1;
  for (std::size_t i = hash & mask; entries_[i].word_size != 0; i = (i + 1) & mask) {
    const Entry& entry = entries_[i];
    if (entry.hash != hash || word != std::string_view(words_).substr(entry.word_at, entry.word_size))
      continue;
    const std::int32_t* ids = ids_.data() + entry.ids_at;
    out.insert(out.end(), ids, ids + entry.num_ids);
    return true;
  }
  return false;
}

void WordCache::insert(std::string_view word, std::uint64_t hash, const std::int32_t* ids,
                       std::size_t num_ids) {
  if (word.empty() || word.size() > kMaxCachedWord) return;
  if (used_ >= kMaxCacheEntries) {
    std::ranges::fill(entries_, Entry{});
    words_.clear();
    ids_.clear();
    used_ = 0;
  }
  if (used_ * 2 >= entries_.size()) grow();
  const std::size_t mask = entries_.size() - 1;
  std::size_t i = hash & mask;
  while (entries_[i].word_size != 0) i = (i + 1) & mask;
  entries_[i] = {hash, static_cast<std::uint32_t>(words_.size()), static_cast<std::uint32_t>(ids_.size()),
                 static_cast<std::uint16_t>(word.size()), static_cast<std::uint16_t>(num_ids)};
  words_.append(word);
  ids_.insert(ids_.end(), ids, ids + num_ids);
  used_++;
}

void WordCache::grow() {
  std::vector<Entry> old(std::max<std::size_t>(1024, entries_.size() * 2));
  old.swap(entries_);
  const std::size_t mask = entries_.size() - 1;
  for (const Entry& entry : old) {
    if (entry.word_size == 0) continue;
    std::size_t i = entry.hash & mask;
    while (entries_[i].word_size != 0) i = (i + 1) & mask;
    entries_[i] = entry;
  }
}

void BpeModel::encode_word(std::string_view word, BpeScratch& scratch, std::vector<std::int32_t>& out) const {
  if (byte_level) {
    if (word.size() == 1 && byte_ids[static_cast<std::uint8_t>(word[0])] >= 0) {
      out.push_back(byte_ids[static_cast<std::uint8_t>(word[0])]);
      return;
    }
    return encode_part(word, scratch, out);
  }
  if (!has_cuts_ || ignore_merges) return encode_part(word, scratch, out);
  for (std::size_t done = 0; done < word.size();) {
    const std::size_t cut = next_cut(word, done);
    encode_part(word.substr(done, cut - done), scratch, out);
    done = cut;
  }
}

void BpeModel::encode_part(std::string_view part, BpeScratch& scratch, std::vector<std::int32_t>& out) const {
  const bool cacheable = part.size() <= kMaxCachedWord;
  const std::uint64_t hash = cacheable ? WordCache::hash(part) : 0;
  if (cacheable && scratch.cache.find(part, hash, out)) return;
  const std::size_t start = out.size();
  const auto whole = ignore_merges ? whole_words.find(part) : whole_words.end();
  if (whole != whole_words.end()) {
    out.push_back(whole->second);
  } else {
    merge_into(part, scratch, out);
  }
  if (cacheable) scratch.cache.insert(part, hash, out.data() + start, out.size() - start);
}

void BpeModel::merge_into(std::string_view part, BpeScratch& scratch, std::vector<std::int32_t>& out) const {
  LODE_ASSERT(part.size() < static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()));
  auto& symbols = scratch.symbols;
  symbols.clear();
  if (byte_level) {
    bytes_to_symbols(part, symbols);
  } else {
    characters_to_symbols(part, symbols);
  }
  if (!symbols.empty()) symbols.back().next = -1;
  if (symbols.size() <= kShortWord) {
    merge_short(symbols);
  } else {
    merge_long(scratch);
  }
  for (const auto& symbol : symbols) {
    if (symbol.id >= 0) out.push_back(symbol.id);
  }
}

void BpeModel::bytes_to_symbols(std::string_view bytes, std::vector<BpeScratch::Symbol>& symbols) const {
  bool after_unknown = false;
  for (const char c : bytes) {
    std::int32_t id = byte_ids[static_cast<std::uint8_t>(c)];
    const bool unknown = id < 0;
    if (unknown && (!unknown_id || (fuse_unknown && after_unknown))) continue;
    if (unknown) id = *unknown_id;
    after_unknown = unknown;
    push_symbol(symbols, id);
  }
}

// Lowest rank first, leftmost among equals, by rescanning.
void BpeModel::merge_short(std::vector<BpeScratch::Symbol>& symbols) const {
  std::size_t n = symbols.size();
  if (n < 2) return;
  const MergeTable::Merge* found[kShortWord] = {};  // found[i]: the merge of symbols i and i + 1
  for (std::size_t i = 0; i + 1 < n; i++) found[i] = merges.find(symbols[i].id, symbols[i + 1].id);
  while (true) {
    std::size_t best = n;
    std::uint32_t rank = std::numeric_limits<std::uint32_t>::max();
    for (std::size_t i = 0; i + 1 < n; i++) {
      if (found[i] != nullptr && found[i]->rank < rank) rank = found[i]->rank, best = i;
    }
    if (best == n) break;
    symbols[best].id = found[best]->id;
    for (std::size_t i = best + 1; i + 1 < n; i++) symbols[i].id = symbols[i + 1].id, found[i] = found[i + 1];
    n--;
    if (best > 0) found[best - 1] = merges.find(symbols[best - 1].id, symbols[best].id);
    if (best + 1 < n) found[best] = merges.find(symbols[best].id, symbols[best + 1].id);
  }
  symbols.resize(n);
}

// The same with a heap and a linked list. A candidate is stale when its pair no longer gives its id.
void BpeModel::merge_long(BpeScratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const auto later = [](const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  const auto candidate = [&](std::int32_t at) -> const MergeTable::Merge* {
    const auto& left = symbols[static_cast<std::size_t>(at)];
    if (left.id < 0 || left.next < 0) return nullptr;
    return merges.find(left.id, symbols[static_cast<std::size_t>(left.next)].id);
  };
  heap.clear();
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(symbols.size()); i++) {
    if (const auto* merge = candidate(i)) heap.push_back({merge->rank, i, merge->id});
  }
  std::ranges::make_heap(heap, later);
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, later);
    const BpeScratch::Candidate top = heap.back();
    heap.pop_back();
    const auto* merge = candidate(top.at);
    if (merge == nullptr || merge->id != top.id) continue;
    auto& left = symbols[static_cast<std::size_t>(top.at)];
    auto& right = symbols[static_cast<std::size_t>(left.next)];
    left.id = top.id;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = top.at;
    for (const std::int32_t at : {left.previous, top.at}) {
      if (at < 0) continue;
      if (const auto* next = candidate(at)) {
        heap.push_back({next->rank, at, next->id});
        std::ranges::push_heap(heap, later);
      }
    }
  }
}

}  // namespace lode::text
